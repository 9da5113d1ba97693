//! Every exchange that was recorded with upstream's API server, replayed. Skipped where the recordings are not at hand.

mod fixture;
mod replay;

use ferry_server::{AdmissionSettings, Authorization, Mode, Settings};

/// How many answers of a recording may differ, because what makes them is not there yet: custom resources,
/// aggregated API servers. Five more are about `data` of a `ControllerRevision`, which upstream keeps with the
/// spaces that it was sent with, and which a patch therefore changes.
struct Allowed {
    statuses: usize,
    bodies: usize,
}

async fn check(name: &str, allowed: Allowed) {
    let Some(exchanges) = replay::recording(name) else { return };
    // As upstream was started for the recordings.
    let authorization = Authorization { modes: vec![Mode::Node, Mode::Rbac] };
    let admission = AdmissionSettings::new(&["NodeRestriction".into()], &[]).unwrap();
    let settings = Settings { authorization, admission, ..Settings::default() };
    let (service, _dir) = fixture::server_with(settings).await;
    let mut replay = replay::Replay::new(service).await;
    let (mut statuses, mut bodies) = (0, 0);
    for verdict in replay.run(&exchanges).await {
        if !verdict.body {
            println!("{}", verdict.said);
        }
        statuses += usize::from(!verdict.status);
        bodies += usize::from(!verdict.body);
    }
    println!("{name}: {} exchanges, {statuses} other statuses, {bodies} other bodies", exchanges.len());
    assert!(statuses <= allowed.statuses, "{statuses} statuses differ, {} may", allowed.statuses);
    assert!(bodies <= allowed.bodies, "{bodies} bodies differ, {} may", allowed.bodies);
}

#[tokio::test]
async fn lists_and_watches() {
    check("watch.jsonl", Allowed { statuses: 0, bodies: 0 }).await;
}

#[tokio::test]
async fn every_resource_and_verb() {
    check("exchanges.jsonl", Allowed { statuses: 0, bodies: 9 }).await;
}

#[tokio::test]
async fn roles_nodes_admission_and_policies() {
    check("gate.jsonl", Allowed { statuses: 0, bodies: 0 }).await;
}

#[tokio::test]
async fn custom_resources() {
    check("custom.jsonl", Allowed { statuses: 0, bodies: 0 }).await;
}
