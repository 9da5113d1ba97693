//! Comparison with upstream's plug-ins: random clusters, recorded with what upstream made of them.
//!
//! `tests/go-scheduler` records; `FERRY_SCHEDULER_CASES=FILE` compares with other cases than the recorded ones.

use std::{collections::BTreeMap, sync::Arc};

use client::SharedInformerFactory;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::SchedulerCache,
    config::{EnabledPlugin, SchedulerProfile},
    extender::Extenders,
    framework::{Framework, cycle_state::CycleState, extension_points::CycleContext},
    handle::SchedulerHandle,
    new_framework,
    objects::ClusterObjects,
    plugins::priority_sort::PrioritySort,
    queue::{QueueDurations, SchedulingQueue},
    snapshot::Snapshot,
    views::{
        node_info::{NodeInfo, NodeView},
        pod_info::PodInfo,
    },
};

/// Plug-ins that the recording leaves out, for they need a whole cluster.
const LEFT_OUT: [&str; 6] =
    ["DynamicResources", "DefaultPreemption", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "VolumeRestrictions"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedCase {
    seed: i64,
    nodes: Vec<Node>,
    #[serde(default)]
    pods: Option<Vec<Pod>>,
    pod: Pod,
    #[serde(default)]
    pre_filter: String,
    reasons: BTreeMap<String, String>,
    /// Weighted.
    #[serde(default)]
    scores: BTreeMap<String, Vec<i64>>,
    feasible: Vec<String>,
}

/// A framework whose informers never get an answer: all that cases need is in the snapshot.
pub(crate) fn framework() -> Framework {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
    });
    let client = client::transport::in_process_client(silent, "test");
    let informers = SharedInformerFactory::new(client.clone(), CancellationToken::new());
    let objects = ClusterObjects::new(&informers);
    let queue = SchedulingQueue::new(Arc::new(PrioritySort), QueueDurations::default());
    let parts = (informers.informer_for(), informers.informer_for(), objects);
    let handle = Arc::new(SchedulerHandle::new(client, parts, queue, Extenders::default()));
    let mut profile = SchedulerProfile { scheduler_name: Some("default-scheduler".into()), ..Default::default() };
    let disabled = LEFT_OUT.map(|name| EnabledPlugin { name: name.into(), weight: 0 });
    profile.plugins.multi_point.disabled = disabled.into();
    new_framework(&profile, &handle, "host", &[]).unwrap()
}

fn check(framework: &Framework, case: &RecordedCase) {
    let mut cache = SchedulerCache::default();
    case.nodes.iter().for_each(|node| drop(cache.set_node(Arc::new(NodeView::from_node(node)))));
    for pod in case.pods.iter().flatten() {
        cache.set_pod(Arc::new(PodInfo::from_pod(pod)));
    }
    let mut snapshot = Snapshot::default();
    cache.update_snapshot(&mut snapshot);
    check_snapshot(framework, case, &snapshot);
    check_kept_counts(framework, case, &mut cache, &mut snapshot);
}

/// Checks that counts which plug-ins keep for a class follow the pods that come and go.
fn check_kept_counts(framework: &Framework, case: &RecordedCase, cache: &mut SchedulerCache, snapshot: &mut Snapshot) {
    let pods: Vec<_> = case.pods.iter().flatten().map(|pod| Arc::new(PodInfo::from_pod(pod))).collect();
    for pod in pods.iter().step_by(2) {
        cache.remove_pod(&pod.uid);
    }
    cache.update_snapshot(snapshot);
    let pod = Arc::new(PodInfo::from_pod(&case.pod));
    let mut state = CycleState::default();
    let cycle = CycleContext { pod: &pod, snapshot };
    // What fits now was not recorded; the plug-ins count, and must come back to what was.
    if framework.run_pre_filter(cycle, &mut state).is_ok() {
        framework.run_pre_score(cycle, &mut state, snapshot.nodes()).unwrap();
    }
    drop(state);
    for pod in pods.into_iter().step_by(2) {
        cache.set_pod(pod);
    }
    cache.update_snapshot(snapshot);
    check_snapshot(framework, case, snapshot);
}

fn check_snapshot(framework: &Framework, case: &RecordedCase, snapshot: &Snapshot) {
    let pod = Arc::new(PodInfo::from_pod(&case.pod));
    let cycle = CycleContext { pod: &pod, snapshot };
    let mut state = CycleState::default();
    let seed = case.seed;
    if let Err(failure) = framework.run_pre_filter(cycle, &mut state) {
        assert_eq!(failure.status.message(), case.pre_filter, "seed {seed}");
        return;
    }
    assert_eq!(case.pre_filter, "", "seed {seed}");
    let sorted = |text: &str| {
        let mut parts: Vec<String> = text.split(", ").map(str::to_owned).collect();
        parts.sort();
        parts
    };
    let mut feasible: Vec<Arc<NodeInfo>> = Vec::new();
    for (name, reason) in &case.reasons {
        let node = snapshot.get(name).unwrap();
        let result = framework.run_filters(cycle, &state, node);
        let message = result.err().map(|status| status.message()).unwrap_or_default();
        assert_eq!(sorted(&message), sorted(reason), "seed {seed}, {name}");
    }
    feasible.extend(case.feasible.iter().map(|name| snapshot.get(name).unwrap().clone()));
    if feasible.is_empty() {
        return;
    }
    let scores = framework.plugin_scores(cycle, &mut state, &feasible).unwrap();
    let scores: BTreeMap<&str, Vec<i64>> = scores.into_iter().collect();
    let names: Vec<&str> = case.scores.keys().map(String::as_str).collect();
    assert_eq!(scores.keys().copied().collect::<Vec<_>>(), names, "seed {seed}");
    for (name, weight) in crate::config::DEFAULT_PLUGINS {
        let own = scores.get(name).map(|scores| scores.iter().map(|score| score * weight).collect::<Vec<_>>());
        assert_eq!(own.as_ref(), case.scores.get(name), "seed {seed}, {name}");
    }
}

#[tokio::test]
async fn plugins_decide_like_upstreams() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/cases.jsonl").to_owned();
    let file = std::env::var("FERRY_SCHEDULER_CASES").unwrap_or(recorded);
    let framework = framework();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut count = 0;
    for line in text.lines() {
        check(&framework, &serde_json::from_str(line).unwrap());
        count += 1;
    }
    assert!(count >= 100, "{count} cases");
}
