//! Whether a container runtime that others started can be used: it answers, it is ready, and it has a pod network.

use std::time::Duration;

use anyhow::anyhow;
use runtime::cri::CriClient;

use crate::user_error::user_error;

const PATIENCE: Duration = Duration::from_secs(5);

/// A client for the runtime at `endpoint`, or a refusal that says what it lacks.
pub async fn connect_external(endpoint: &str) -> anyhow::Result<CriClient> {
    let cri = connect_cri(endpoint).await.map_err(|error| {
        user_error(
            format!("no container runtime answers at {endpoint}: {error:#}"),
            "`ferry up --install-runtime` installs containerd and runs one for this cluster; or start your own\n  \
             (for example `systemctl start containerd`), or name its socket with --runtime-endpoint unix:///PATH.",
        )
    })?;
    let readiness = cri.fetch_readiness().await?;
    if let Some(why) = readiness.runtime {
        return Err(user_error(
            format!("the container runtime at {endpoint} is not ready: {why}"),
            "Its own log says more.",
        ));
    }
    if let Some(why) = readiness.network {
        return Err(user_error(
            format!("the container runtime at {endpoint} has no pod network: {why}"),
            "Put a CNI configuration where the runtime looks for it (containerd: /etc/cni/net.d), or let ferry run a\n  \
             containerd with a network of its own: `ferry up --install-runtime`.",
        ));
    }
    Ok(cri)
}

/// A client for a runtime that answers soon.
pub async fn connect_cri(endpoint: &str) -> anyhow::Result<CriClient> {
    if let Some(path) = endpoint.strip_prefix("unix://") {
        std::fs::metadata(path).map_err(|error| anyhow!("{error}"))?;
    }
    match tokio::time::timeout(PATIENCE, CriClient::connect(endpoint)).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(anyhow!("no answer within {} s", PATIENCE.as_secs())),
    }
}
