//! Every exchange that was recorded with upstream's API server, replayed: status and body of every answer are the same.
//! Skipped where the recordings are not at hand.

use crate::fixture::authority::Authority;
use crate::{fixture, replay};
use ferry_apiserver::{AdmissionOptions, AuthorizationMode, AuthorizationOptions, ServerOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

async fn check(name: &str) {
    let Some(exchanges) = replay::recording(name) else { return };
    // As upstream was started for the recordings.
    let authorization = AuthorizationOptions { modes: vec![AuthorizationMode::Node, AuthorizationMode::Rbac] };
    let admission = AdmissionOptions::new(&["NodeRestriction".into()], &[]).unwrap();
    let settings = ServerOptions { authorization, admission, ..ServerOptions::default() };
    let dir = tempfile::tempdir().unwrap();
    let server = fixture::start(dir.path(), settings).await;
    let mut replay = replay::Replay::new(server.local_service(fixture::admin())).await;
    // What a server does by itself it does once it listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ending = CancellationToken::new();
    let serving = tokio::spawn(server.serve(listener, Authority::new().server(), ending.clone()));
    let mut differing = 0;
    for verdict in replay.run(&exchanges).await {
        if !verdict.same {
            println!("{}", verdict.said);
            differing += 1;
        }
    }
    println!("{name}: {} exchanges, {differing} differ", exchanges.len());
    ending.cancel();
    serving.await.unwrap();
    assert_eq!(differing, 0, "answers to {name} differ from upstream's");
}

#[tokio::test]
async fn lists_and_watches() {
    check("watch.jsonl").await;
}

#[tokio::test]
async fn every_resource_and_verb() {
    check("exchanges.jsonl").await;
}

#[tokio::test]
async fn roles_nodes_admission_and_policies() {
    check("gate.jsonl").await;
}

#[tokio::test]
async fn custom_resources() {
    check("custom.jsonl").await;
}
