//! Comparison with upstream's plug-ins on random clusters with volumes, devices and disruption budgets: whether the pod fits, the
//! scores, and the victims of a preemption on every node.
//!
//! `tests/go-scheduler` records with `objects`; `FERRY_SCHEDULER_OBJECTS=FILE` compares with other cases than the recorded ones.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
};

use http::Response;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    differential::{RecordedCase, check_scores, new_handle, new_test_framework, snapshot_of, sorted_reasons},
    framework::{Framework, cycle_state::CycleState, extension_points::CycleContext, nominated_pods::NominatedPods},
    handle::SchedulerHandle,
    preemption::{BudgetView, select_victims_on_node},
    snapshot::Snapshot,
    views::pod_info::PodInfo,
};

#[derive(Deserialize)]
struct ObjectCase {
    #[serde(flatten)]
    case: RecordedCase,
    /// By the plural names of their resources.
    objects: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    preemption: BTreeMap<String, RecordedPreemption>,
}

/// The victims of a preemption on a node, or why there are none.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct RecordedPreemption {
    victims: Vec<String>,
    violations: usize,
    message: String,
}

/// An API server that has the objects of a case: a watch gets them once, and nothing after that.
fn object_server(objects: &BTreeMap<String, Vec<Value>>) -> kube::Client {
    let objects = Arc::new(objects.clone());
    let listed: Arc<Mutex<HashSet<String>>> = Arc::default();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let plural = request.uri().path().rsplit('/').next().unwrap_or("").to_owned();
        let is_first = listed.lock().unwrap().insert(plural.clone());
        let lines = is_first.then(|| initial_events(&plural, objects.get(&plural).map_or(&[][..], Vec::as_slice)));
        async move {
            let Some(lines) = lines else { return std::future::pending().await };
            Ok::<_, tower::BoxError>(Response::new(Body::from(lines.into_bytes())))
        }
    });
    client::transport::in_process_client(service, "test")
}

/// The events of a watch with initial events, in the versions that upstream names.
fn initial_events(plural: &str, objects: &[Value]) -> String {
    let mut lines = String::new();
    for (number, object) in (1..).zip(objects) {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = number.to_string().into();
        lines += &format!("{}\n", json!({"type": "ADDED", "object": object}));
    }
    let end = json!({"resourceVersion": "1000", "annotations": {"k8s.io/initial-events-end": "true"}});
    let kind =
        json!({"kind": plural, "apiVersion": "v1", "metadata": end, "spec": {}, "provisioner": "", "driver": ""});
    lines + &format!("{}\n", json!({"type": "BOOKMARK", "object": kind}))
}

async fn check(case: &ObjectCase) {
    let handle = new_handle(object_server(&case.objects));
    handle.objects.wait_for_sync().await;
    let framework = new_test_framework(&handle, &[]);
    let (_, snapshot) = snapshot_of(&case.case);
    check_nodes(&framework, &handle, case, &snapshot);
}

fn check_nodes(framework: &Framework, handle: &SchedulerHandle, case: &ObjectCase, snapshot: &Snapshot) {
    let (recorded, seed) = (&case.case, case.case.seed);
    let pod = Arc::new(PodInfo::from_pod(&recorded.pod));
    let cycle = CycleContext { pod: &pod, snapshot };
    let mut state = CycleState::default();
    if let Err(failure) = framework.run_pre_filter(cycle, &mut state) {
        assert_eq!(failure.status.message(), recorded.pre_filter, "seed {seed}");
        return;
    }
    assert_eq!(recorded.pre_filter, "", "seed {seed}");
    for (name, reason) in &recorded.reasons {
        let result = framework.run_filters(cycle, &state, snapshot.get(name).unwrap());
        let message = result.err().map(|status| status.message()).unwrap_or_default();
        assert_eq!(sorted_reasons(&message), sorted_reasons(reason), "seed {seed}, {name}");
    }
    check_preemption(framework, handle, case, cycle, &state);
    let feasible: Vec<_> = recorded.feasible.iter().map(|name| snapshot.get(name).unwrap().clone()).collect();
    if !feasible.is_empty() {
        check_scores(framework, recorded, cycle, &mut state, &feasible);
    }
}

fn check_preemption(
    framework: &Framework,
    handle: &SchedulerHandle,
    case: &ObjectCase,
    cycle: CycleContext<'_>,
    state: &CycleState,
) {
    let seed = case.case.seed;
    let budgets: Vec<Arc<PodDisruptionBudget>> = handle.objects.budgets.list();
    let budgets: Vec<BudgetView> = budgets.iter().map(|budget| BudgetView::from_budget(budget)).collect();
    for (name, recorded) in &case.preemption {
        let node = cycle.snapshot.get(name).unwrap();
        let nominated = NominatedPods::default();
        match select_victims_on_node(cycle, (framework, state), node, &nominated, &budgets) {
            Ok(candidate) => {
                let victims: Vec<&str> = candidate.victims.iter().map(|pod| &*pod.name).collect();
                assert_eq!(
                    (victims, candidate.violations),
                    (recorded.victims.iter().map(String::as_str).collect(), recorded.violations),
                    "seed {seed}, {name}"
                );
            }
            Err(status) => {
                assert_eq!(sorted_reasons(&status.message()), sorted_reasons(&recorded.message), "seed {seed}, {name}");
            }
        }
    }
}

#[tokio::test]
async fn plugins_decide_like_upstreams_with_objects() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/objects.jsonl").to_owned();
    let file = std::env::var("FERRY_SCHEDULER_OBJECTS").unwrap_or(recorded);
    let text = std::fs::read_to_string(&file).unwrap();
    let mut count = 0;
    for line in text.lines() {
        check(&serde_json::from_str(line).unwrap()).await;
        count += 1;
    }
    assert!(count >= 100, "{count} cases");
}
