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
    config::{EnabledPlugin, SchedulerProfile, feature_gates::SchedulerFeatures},
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
pub(crate) struct RecordedCase {
    pub seed: i64,
    pub nodes: Vec<Node>,
    #[serde(default)]
    pub pods: Option<Vec<Pod>>,
    pub pod: Pod,
    #[serde(default)]
    pub pre_filter: String,
    pub reasons: BTreeMap<String, String>,
    /// Weighted.
    #[serde(default)]
    pub scores: BTreeMap<String, Vec<i64>>,
    pub feasible: Vec<String>,
}

/// A framework whose informers never get an answer: all that cases need is in the snapshot.
pub(crate) fn framework() -> Framework {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
    });
    let handle = new_handle(client::transport::in_process_client(silent, "test"));
    new_test_framework(&handle, &LEFT_OUT)
}

/// The shared parts of a scheduler that nothing follows.
pub(crate) fn new_handle(client: kube::Client) -> Arc<SchedulerHandle> {
    let informers = SharedInformerFactory::new(client.clone(), CancellationToken::new());
    let features = SchedulerFeatures::default();
    let objects = ClusterObjects::new(&informers, &features);
    let queue = SchedulingQueue::new(Arc::new(PrioritySort), QueueDurations::default());
    let parts = (informers.informer_for(), informers.informer_for(), objects);
    Arc::new(SchedulerHandle::new(client, parts, queue, Extenders::default(), features))
}

/// The default plug-ins but for some.
pub(crate) fn new_test_framework(handle: &Arc<SchedulerHandle>, left_out: &[&str]) -> Framework {
    let mut profile = SchedulerProfile { scheduler_name: Some("default-scheduler".into()), ..Default::default() };
    let disabled = left_out.iter().map(|name| EnabledPlugin { name: (*name).into(), weight: 0 });
    profile.plugins.multi_point.disabled = disabled.collect();
    new_framework(&profile, handle, "host", &[]).unwrap()
}

/// A snapshot of the nodes and pods of a case, with the cache that it was made from.
pub(crate) fn snapshot_of(case: &RecordedCase) -> (SchedulerCache, Snapshot) {
    let mut cache = SchedulerCache::default();
    case.nodes.iter().for_each(|node| drop(cache.set_node(Arc::new(NodeView::from_node(node)))));
    for pod in case.pods.iter().flatten() {
        cache.set_pod(Arc::new(PodInfo::from_pod(pod)));
    }
    let mut snapshot = Snapshot::default();
    cache.update_snapshot(&mut snapshot);
    (cache, snapshot)
}

fn check(framework: &Framework, case: &RecordedCase) {
    let (mut cache, mut snapshot) = snapshot_of(case);
    check_snapshot(framework, case, &snapshot);
    check_kept_counts(framework, case, &mut cache, &mut snapshot);
}

/// Checks that counts which plug-ins keep for a class follow the pods that come and go.
fn check_kept_counts(framework: &Framework, case: &RecordedCase, cache: &mut SchedulerCache, snapshot: &mut Snapshot) {
    let pods: Vec<_> = case.pods.iter().flatten().map(|pod| Arc::new(PodInfo::from_pod(pod))).collect();
    for pod in pods.iter().step_by(2) {
        cache.remove_pod(pod);
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
    let mut feasible: Vec<Arc<NodeInfo>> = Vec::new();
    for (name, reason) in &case.reasons {
        let node = snapshot.get(name).unwrap();
        let result = framework.run_filters(cycle, &state, node);
        let message = result.err().map(|status| status.message()).unwrap_or_default();
        assert_eq!(sorted_reasons(&message), sorted_reasons(reason), "seed {seed}, {name}");
    }
    feasible.extend(case.feasible.iter().map(|name| snapshot.get(name).unwrap().clone()));
    if feasible.is_empty() {
        return;
    }
    check_scores(framework, case, cycle, &mut state, &feasible);
}

/// Compares the weighted scores of all plug-ins.
pub(crate) fn check_scores(
    framework: &Framework,
    case: &RecordedCase,
    cycle: CycleContext<'_>,
    state: &mut CycleState,
    feasible: &[Arc<NodeInfo>],
) {
    let seed = case.seed;
    let scores = framework.plugin_scores(cycle, state, feasible).unwrap();
    let scores: BTreeMap<&str, Vec<i64>> = scores.into_iter().collect();
    let known = |name: &&str| crate::config::DEFAULT_PLUGINS.iter().any(|(known, _)| known == name);
    assert!(case.scores.keys().map(String::as_str).all(|name| known(&name)), "seed {seed}");
    for (name, weight) in crate::config::DEFAULT_PLUGINS {
        let own = scores.get(name).map(|scores| scores.iter().map(|score| score * weight).collect::<Vec<_>>());
        // A plug-in that gives every node nothing may as well be left out.
        let recorded =
            case.scores.get(name).filter(|recorded| own.is_some() || recorded.iter().any(|score| *score != 0));
        assert_eq!(own.as_ref(), recorded, "seed {seed}, {name}");
    }
}

/// Sorts reasons that were joined.
pub(crate) fn sorted_reasons(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = text.split(", ").map(str::to_owned).collect();
    parts.sort();
    parts
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
