//! The service proxy alone, under upstream's name and with upstream's flags, in nftables mode.
//!
//! It runs against any Kubernetes API server until SIGTERM or SIGINT. Its tables stay, so that services go on;
//! `--cleanup` deletes them.

mod options;

use std::process::ExitCode;

use anyhow::Context;
use network::proxy::ServiceProxy;
use tokio::net::TcpListener;

use crate::{
    component_command::{ComponentCommand, start_logging},
    shutdown::ComponentSet,
};
use options::KubeProxyOptions;

const FLAGS: &str = include_str!("flags.txt");
const COMMAND: ComponentCommand = ComponentCommand {
    name: "kube-proxy",
    about: "The service proxy of a node: it makes the addresses and ports of Services lead to their endpoints.",
    flags: FLAGS,
};
/// The name of the tables.
const TABLE: &str = "ferry-kube-proxy";

/// Runs the proxy until it is asked to end.
pub fn run_command(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    COMMAND.run(arguments, |given| {
        if given.bool("cleanup")? {
            return network::proxy::remove_tables(TABLE).context("cannot delete the tables");
        }
        let options = KubeProxyOptions::from_flags(given, TABLE)?;
        start_logging(given)?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run_until_signal(options))
    })
}

async fn run_until_signal(options: KubeProxyOptions) -> anyhow::Result<()> {
    let mut components = ComponentSet::new()?;
    let outcome = match start(options, &mut components).await {
        Ok(()) => components.wait_for_shutdown().await,
        Err(error) => Err(error),
    };
    components.stop_all().await;
    outcome
}

async fn start(options: KubeProxyOptions, components: &mut ComponentSet) -> anyhow::Result<()> {
    let (kubeconfig, master) = (options.kubeconfig.as_deref(), options.master.as_deref());
    let clients = client::transport::component_clients(kubeconfig, master, COMMAND.name)
        .await
        .context("cannot connect to the API server")?;
    let health = bind(options.health_address.as_deref(), options.hard_fail).await?;
    let metrics = bind(options.metrics_address.as_deref(), options.hard_fail).await?;
    components.start("service proxy", |shutdown| async move {
        let proxy = ServiceProxy::new(clients.authenticated, options.proxy, shutdown.clone());
        if let Some(listener) = health {
            proxy.serve_health(listener, shutdown.clone());
        }
        if let Some(listener) = metrics {
            proxy.serve_metrics(listener, shutdown.clone());
        }
        Ok(proxy.run(shutdown).await?)
    });
    Ok(())
}

/// Binds a port; a failure ends the program only if asked to.
async fn bind(address: Option<&str>, hard_fail: bool) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if hard_fail => Err(error).with_context(|| format!("cannot listen on {address}")),
        Err(error) => {
            tracing::error!(address, %error, "kube-proxy: cannot listen, going on without it");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::FlagTable;

    #[test]
    fn the_table_is_whole() {
        let table = FlagTable::parse(FLAGS);
        let rows = FLAGS.lines().filter(|line| line.contains(": ") && !line.starts_with('#')).count();
        assert_eq!(table.flags().len(), rows);
        assert!(table.help(COMMAND.name, COMMAND.about).contains("--nodeport-addresses strings"));
    }
}
