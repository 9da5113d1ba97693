//! The kubelet alone, under upstream's name and with upstream's flags and configuration file.
//!
//! It runs against any Kubernetes API server until SIGTERM or SIGINT. Pods go on running.

mod configuration;
mod credentials;
mod options;

use std::{process::ExitCode, sync::Arc};

use anyhow::Context;
use tokio::net::TcpListener;

use self::{
    credentials::{ApiAccess, ServingCertificate, run_renewal},
    options::{KubeletOptions, outbound_address},
};
use crate::{
    component_command::{ComponentCommand, start_logging},
    flags::FlagTable,
    shutdown::ComponentSet,
};

const FLAGS: &str = include_str!("flags.txt");
const COMMAND: ComponentCommand = ComponentCommand {
    name: "kubelet",
    about: "The node agent: it runs the pods that are bound to its node, and static pods, and reports their status.",
    flags: FLAGS,
};

/// Runs the kubelet until it is asked to end.
pub fn run_command(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    COMMAND.run(arguments, |given| {
        start_logging(given)?;
        let options = KubeletOptions::from_flags(given, &FlagTable::parse(FLAGS))?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run_until_signal(options))
    })
}

async fn run_until_signal(options: KubeletOptions) -> anyhow::Result<()> {
    let mut components = ComponentSet::new()?;
    let outcome = match start(options, &mut components).await {
        Ok(()) => components.wait_for_shutdown().await,
        Err(error) => Err(error),
    };
    components.stop_all().await;
    outcome
}

async fn start(options: KubeletOptions, components: &mut ComponentSet) -> anyhow::Result<()> {
    let access = ApiAccess::obtain(&options).await.context("cannot connect to the API server")?;
    let node_ip = match options.node_ip {
        Some(ip) => ip,
        None => outbound_address(&access.server)?,
    };
    let serving = ServingCertificate::load(&options, node_ip)?;
    let tls = Arc::new(serving.server_tls(options.client_ca_file.as_deref())?);
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?.into_std()?;
    let config = kubelet::KubeletConfig {
        node_name: options.node_name.clone(),
        node_ip,
        cluster_dns: options.cluster_dns.clone(),
        runtime_endpoint: options.runtime_endpoint.clone(),
        root_dir: options.root_dir.clone(),
        pod_logs_dir: options.pod_logs_dir.clone(),
        cgroup_root: options.cgroup_root.clone(),
        listener,
        settings: options.settings.clone(),
        tls,
    };
    let client = access.client.clone();
    components.start("kubelet", |shutdown| async move { Ok(kubelet::run_kubelet(config, client, shutdown).await?) });
    let options = Arc::new(options);
    components.start("certificates", |shutdown| async move {
        run_renewal(options, access, serving, node_ip, shutdown).await;
        Ok(())
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let table = FlagTable::parse(FLAGS);
        let rows = FLAGS.lines().filter(|line| line.contains(": ") && !line.starts_with('#')).count();
        assert_eq!(table.flags().len(), rows);
        assert!(table.help(COMMAND.name, COMMAND.about).contains("--bootstrap-kubeconfig string"));
    }
}
