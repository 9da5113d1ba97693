//! Tests of flow control with a server.

use std::time::Duration;

use ::flowcontrol::{FlowControlOptions, RejectReason, RequestDigest};
use apiserver_core::{Caller, User, query::Query};
use http::{HeaderValue, Method};

use crate::{Server, ServerOptions, fixture};

async fn server(load: FlowControlOptions) -> (Server, tempfile::TempDir) {
    fixture::start_server(ServerOptions { load, ..Default::default() }).await
}

fn client(name: &str, group: &str) -> Caller {
    Caller::Client(User {
        name: name.into(),
        groups: vec![group.into(), "system:authenticated".into()],
        ..User::default()
    })
}

fn target(path: &str) -> apiserver_core::request::ResourceRequest {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    apiserver_core::request::parse_resource_request(&Method::GET, path, Query::parse(query), &Default::default())
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn flood_is_rejected_and_administrators_are_exempt() {
    let load =
        FlowControlOptions { reads: 5, writes: 5, request_timeout: Duration::from_millis(4), ..Default::default() };
    let (server, _dir) = server(load).await;
    let (pods, jane) = (target("/api/v1/namespaces/a/pods/b"), client("jane", "devs"));
    let mut held = Vec::new();
    let refused = loop {
        match server.shared.flow_controller.admit_request(&jane, &RequestDigest::Resource(&pods)).await {
            Ok(place) => held.push(place),
            Err(response) => break response,
        }
        assert!(held.len() <= 10, "there are only ten seats");
    };
    let refused = crate::pipeline::too_many_requests(&refused);
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &HeaderValue::from_static("1")));
    let uids = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];
    assert!(uids.iter().all(|name| refused.headers().contains_key(*name)));
    assert!(!held.is_empty());
    for _ in 0..100 {
        held.push(
            server
                .shared
                .flow_controller
                .admit_request(&client("admin", "system:masters"), &RequestDigest::Resource(&pods))
                .await
                .unwrap_or_default(),
        );
    }
    let global = server
        .shared
        .flow_controller
        .level_snapshots()
        .into_iter()
        .find(|level| &*level.name == "global-default")
        .unwrap();
    assert_eq!(global.counts["global-default"].refused[&RejectReason::TooLong], 1);
}

#[tokio::test]
async fn plain_limits_separate_reads_and_writes() {
    let load = FlowControlOptions { reads: 1, writes: 1, fairness: false, ..Default::default() };
    let (server, _dir) = server(load).await;
    let (get, jane) = (target("/api/v1/namespaces/a/pods/b"), client("jane", "devs"));
    let held =
        server.shared.flow_controller.admit_request(&jane, &RequestDigest::Resource(&get)).await.unwrap_or_default();
    assert!(server.shared.flow_controller.admit_request(&jane, &RequestDigest::Resource(&get)).await.is_err());
    let watch = target("/api/v1/namespaces/a/pods?watch=1");
    assert!(server.shared.flow_controller.admit_request(&jane, &RequestDigest::Resource(&watch)).await.is_ok());
    let write = apiserver_core::request::ResourceRequest { verb: "update", ..target("/api/v1/namespaces/a/pods/b") };
    assert!(server.shared.flow_controller.admit_request(&jane, &RequestDigest::Resource(&write)).await.is_ok());
    drop(held);
    assert!(server.shared.flow_controller.admit_request(&jane, &RequestDigest::Resource(&get)).await.is_ok());
}

#[tokio::test]
async fn seats_follow_the_objects() {
    let (server, _dir) = server(FlowControlOptions::default()).await;
    let seats = |name: &str| {
        let levels = server.shared.flow_controller.level_snapshots();
        levels.iter().find(|level| &*level.name == name).map(|level| level.nominal)
    };
    // 600 seats by 245 shares, rounded up, as upstream.
    assert_eq!((seats("workload-low"), seats("catch-all"), seats("exempt")), (Some(245), Some(13), Some(0)));
}
