//! Behaviour of the etcd engine only: endpoints, TLS, reconnects, compaction in turns.

use std::{fs, path::PathBuf, time::Duration};

use crate::engines::EtcdServer;
use ferry_store::{EtcdOptions, EtcdStore, KeyLayout, ListOptions, Precondition, Store, StoreError, WriteRequest};
use futures::StreamExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

fn layout() -> KeyLayout {
    KeyLayout::Upstream("/registry".into())
}

async fn create(store: &dyn Store, key: &str) -> Result<u64, StoreError> {
    store
        .write(WriteRequest { key: key.into(), precondition: Precondition::Absent, value: Some("x".into()), ttl: None })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_resumes_after_etcd_is_killed() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = server.open(layout()).await;
    let first = create(&store, "/registry/pods/a/1").await.unwrap();
    let mut watch = store.watch("/registry/pods/", first).await.unwrap();
    create(&store, "/registry/pods/a/2").await.unwrap();
    assert_eq!(&*watch.next().await.unwrap().unwrap().key, "/registry/pods/a/2");
    server.restart();
    let mut written = create(&store, "/registry/pods/a/3").await;
    while written.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        written = create(&store, "/registry/pods/a/3").await;
        // A write whose answer was lost has happened.
        if matches!(written, Err(StoreError::Conflict { .. })) {
            break;
        }
    }
    assert_eq!(&*watch.next().await.unwrap().unwrap().key, "/registry/pods/a/3");
    assert_eq!(store.list(ListOptions::default()).await.unwrap().records.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_servers_suffices() {
    let Some(server) = EtcdServer::start() else { return };
    server.open(layout()).await;
    let servers = vec!["http://127.0.0.1:1".into(), server.url.clone()];
    let store = EtcdServer::open_with(EtcdOptions { servers, ..server.options(layout()) }).await;
    for count in 0..20 {
        create(&store, &format!("/registry/pods/a/{count}")).await.unwrap();
    }
    store.check_health().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_compacted_by_one_server_at_a_time() {
    let Some(server) = EtcdServer::start() else { return };
    let store = server.open(layout()).await;
    let first = create(&store, "/registry/pods/a/1").await.unwrap();
    create(&store, "/registry/pods/a/2").await.unwrap();
    let compactor = store.clone();
    let running = tokio::spawn(async move { compactor.run_compactor(Duration::from_millis(50)).await });
    loop {
        match store.list(ListOptions { at: Some(first), ..ListOptions::default() }).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(StoreError::Compacted { requested, oldest }) => break assert!(oldest > requested),
            Err(error) => panic!("{error}"),
        }
    }
    running.abort();
    assert_eq!(store.list(ListOptions::default()).await.unwrap().records.len(), 2, "the key of the turns is shown");
}

/// Writes a CA, and a certificate and key for loopback that it signed; returns the three files.
fn certificates(dir: &std::path::Path, name: &str) -> [PathBuf; 3] {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::from_params(&params, &ca_key)).unwrap();
    let files = ["ca.pem", "cert.pem", "key.pem"].map(|file| dir.join(format!("{name}-{file}")));
    for (file, text) in files.iter().zip([ca.pem(), leaf.pem(), key.serialize_pem()]) {
        fs::write(file, text).unwrap();
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let [ca, certificate, key] = certificates(dir.path(), "ours");
    let [other_ca, other_certificate, other_key] = certificates(dir.path(), "other");
    let arguments = [
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", ca.display()),
        format!("--cert-file={}", certificate.display()),
        format!("--key-file={}", key.display()),
    ];
    let Some(server) = EtcdServer::start_with("https", dir, &arguments) else { return };
    let identity = Some((certificate, key));
    let good = EtcdOptions { ca: Some(ca), identity, ..server.options(layout()) };
    let store = EtcdServer::open_with(good.clone()).await;
    create(&store, "/registry/pods/a/1").await.unwrap();

    for bad in [
        EtcdOptions { ca: Some(other_ca), ..good.clone() },
        EtcdOptions { identity: None, ..good.clone() },
        EtcdOptions { identity: Some((other_certificate, other_key)), ..good },
    ] {
        let refused = EtcdStore::open(bad).await.err().expect("connected").to_string();
        assert!(refused.contains(&server.url), "{refused}");
        println!("{refused}");
    }
}
