//! Renewal of the cluster's certificates while it runs.
//!
//! Certificates that end soon are issued anew, and files that others changed are read again; new connections use what
//! the files have. The administrator's certificate is renewed in the kubeconfigs too.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;

use crate::{
    instance::CONTEXT,
    kubeconfig::Kubeconfig,
    options::UpOptions,
    pki::{self, CertificatePair, ClusterCertificates},
    state::InstanceState,
};

/// Time between two looks at the files.
const RENEWAL_PERIOD: Duration = Duration::from_secs(60);

/// Renews certificates until `shutdown`. Failures are logged and tried again.
pub async fn run_renewal(options: UpOptions, certificates: ClusterCertificates, shutdown: CancellationToken) {
    let (options, certificates) = (Arc::new(options), Arc::new(certificates));
    while shutdown.run_until_cancelled(tokio::time::sleep(RENEWAL_PERIOD)).await.is_some() {
        let (options, certificates) = (options.clone(), certificates.clone());
        let renew = move || renew_certificates(&options, &certificates, SystemTime::now());
        match tokio::task::spawn_blocking(renew).await {
            Ok(Ok(issued)) if issued.is_empty() => {}
            Ok(Ok(issued)) => tracing::info!(issued = issued.join(", "), "certificates: renewed"),
            Ok(Err(error)) => tracing::warn!(error = format!("{error:#}"), "certificates: renewal failed, retrying"),
            Err(error) => tracing::error!(%error, "certificates: renewal panicked, retrying"),
        }
    }
}

/// Issues what ends soon and takes it into use; returns the names of what was issued.
fn renew_certificates(
    options: &UpOptions,
    certificates: &ClusterCertificates,
    now: SystemTime,
) -> anyhow::Result<Vec<&'static str>> {
    let pki = pki::prepare_pki(&options.instance.pki(), &options.names(), now)?;
    certificates.reload()?;
    if pki.issued.contains(&"admin") {
        let state = InstanceState::load(&options.instance)?;
        set_user(&options.instance.admin_kubeconfig(), CONTEXT, &pki.admin, None)?;
        if let Some((file, context)) = state.kubeconfig.zip(state.context) {
            set_user(&file, &context, &pki.admin, options.kubeconfig_owner)?;
        }
    }
    Ok(pki.issued)
}

fn set_user(file: &Path, name: &str, user: &CertificatePair, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    let mut kubeconfig = Kubeconfig::read(file)?;
    kubeconfig.set_user(name, user);
    kubeconfig.write(owner)
}
