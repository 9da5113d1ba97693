//! Leader election of the components against a real API server with RBAC.

use std::time::Duration;

use client::{LeaderElectionConfig, LeaderElector};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;

async fn start_server(directory: &std::path::Path) -> Server {
    let store = store::EmbeddedStore::open(directory, store::EmbeddedOptions::default()).await.unwrap();
    let tls = rustls::ClientConfig::builder_with_provider(pki::crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let config = apiserver::ServerConfig { store: Arc::new(store), kubelet_tls: Arc::new(tls), tokens: None };
    let settings = ServerOptions {
        authorization: AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] },
        ..ServerOptions::default()
    };
    Server::with_options(config, settings).await.unwrap()
}

/// Starts a candidate that reports its identity when it leads.
fn start_candidate(
    server: &Server,
    name: &'static str,
    identity: &'static str,
    leaders: mpsc::UnboundedSender<&'static str>,
) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let client = in_process_client(server, name, format!("system:{name}"), &[]);
    let elector = LeaderElector::new(client, name, LeaderElectionConfig::new(name, identity));
    let shutdown = CancellationToken::new();
    let lead = move |term: CancellationToken| {
        leaders.send(identity).unwrap();
        async move { term.cancelled().await }
    };
    (shutdown.clone(), tokio::spawn(elector.run(shutdown, lead)))
}

#[tokio::test]
async fn instances_on_one_store_elect_one_leader_per_component() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_server(directory.path()).await;
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let (sender, mut leaders) = mpsc::unbounded_channel();
        let (stop_first, first) = start_candidate(&server, name, "first", sender.clone());
        let started = std::time::Instant::now();
        assert_eq!(leaders.recv().await, Some("first"));
        assert!(started.elapsed() < Duration::from_secs(2), "a single candidate leads at once");
        let (stop_second, second) = start_candidate(&server, name, "second", sender);
        assert!(tokio::time::timeout(Duration::from_secs(3), leaders.recv()).await.is_err(), "{name}: two leaders");
        stop_first.cancel();
        first.await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(10), leaders.recv()).await;
        assert_eq!(next.unwrap(), Some("second"), "a released lease is taken over");
        stop_second.cancel();
        second.await.unwrap();
    }
}
