//! The API server alone, under upstream's name and with upstream's flags: `kube-apiserver …` or `ferry kube-apiserver …`.
//!
//! It runs in the foreground until SIGTERM or SIGINT, logs to standard error, and needs no controllers beside it.

mod audit;
mod authentication;
mod authorization;
mod certificates;
mod flag_files;
mod options;

use std::process::ExitCode;

use anyhow::Context;
use apiserver::Server;
use tokio::net::TcpListener;

use crate::{
    component_command::{ComponentCommand, start_logging},
    shutdown::ComponentSet,
};
use options::ApiServerOptions;

const FLAGS: &str = include_str!("flags.txt");
const ABOUT: &str =
    "The Kubernetes API server: it validates and keeps the objects of a cluster and serves them to all other
components. This is ferry's; without --etcd-servers it keeps the objects itself, under --data-dir.";

const COMMAND: ComponentCommand = ComponentCommand { name: "kube-apiserver", about: ABOUT, flags: FLAGS };

/// Runs the API server until it is asked to end.
pub fn run_command(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    COMMAND.run(arguments, |given| {
        let options = ApiServerOptions::from_flags(given)?;
        start_logging(given)?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve_until_signal(options))
    })
}

async fn serve_until_signal(options: ApiServerOptions) -> anyhow::Result<()> {
    let mut components = ComponentSet::with_deadline(options.deadline())?;
    let outcome = match start(options, &mut components).await {
        Ok(()) => components.wait_for_shutdown().await,
        Err(error) => Err(error),
    };
    components.stop_all().await;
    outcome
}

async fn start(mut options: ApiServerOptions, components: &mut ComponentSet) -> anyhow::Result<()> {
    let (address, port) = (options.bind_address, options.port);
    let listener = TcpListener::bind((address, port)).await;
    let listener = listener.with_context(|| format!("cannot listen on {address} port {port}"))?;
    let verifier = apiserver::client_verifier(&options.settings.authentication);
    options.settings.reload.client_verifier = Some(verifier.clone());
    let tls = certificates::serving_config(&options, verifier)?;
    let kubelet_tls = certificates::kubelet_client(&options)?;
    let store = tokio::time::timeout(options.storage_timeout, options.storage.open(&options.store_dir()))
        .await
        .context("the store does not answer; --storage-initialization-timeout says how long it may take")??;
    let server =
        Server::with_options(apiserver::ServerConfig { store, kubelet_tls, tokens: options.tokens }, options.settings)
            .await?;
    tracing::info!(%address, port = listener.local_addr()?.port(), "serving");
    let files = options.files;
    let reloaded = [files.serving, files.kubelet_client, files.proxy_client].into_iter().flatten().collect();
    components.start("certificate reload", |shutdown| async move {
        certificates::run_reload(reloaded, shutdown).await;
        Ok(())
    });
    components.start("API server", |shutdown| async move {
        server.serve(listener, tls, shutdown).await;
        Ok(())
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{FlagStatus, FlagTable};

    #[test]
    fn the_table_is_whole() {
        let table = FlagTable::parse(FLAGS);
        let rows = FLAGS.lines().filter(|line| line.contains(": ") && !line.starts_with('#')).count();
        assert_eq!(table.flags().len(), rows);
        assert!(table.flags().iter().all(|flag| !flag.section.is_empty() && table.find(flag.name).is_some()));
        assert!(table.flags().iter().filter(|flag| flag.state == FlagStatus::Used).count() > 40);
    }

    #[test]
    fn help_groups_flags_as_upstream_does() {
        let help = FlagTable::parse(FLAGS).help("kube-apiserver", ABOUT);
        for section in ["Generic flags:", "Storage flags:", "Secure serving flags:", "Misc flags:", "Global flags:"] {
            assert!(help.contains(&format!("\n{section}\n\n")), "{section}");
        }
        assert!(help.contains("--secure-port int"));
    }
}
