//! Tests with synthetic specs and runtime statuses.

use super::*;
use runtime::cri::types::{ContainerMetadata, ContainerStatus, PodSandboxStatus};
use serde_json::json;

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": { "restartPolicy": policy,
        "initContainers": [{ "name": "i", "image": "x" }],
        "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": "x" }] } }))
    .unwrap()
}

fn record(name: &str, state: ContainerState, exit_code: i32, attempt: u32) -> ContainerRecord {
    let status = ContainerStatus {
        id: format!("{name}-{attempt}"),
        metadata: Some(ContainerMetadata { name: name.into(), attempt }),
        state: state as i32,
        exit_code,
        finished_at: 1_000_000_000_000,
        ..Default::default()
    };
    ContainerRecord { sandbox: "s".into(), status }
}

fn runtime_status(containers: Vec<ContainerRecord>) -> PodRuntimeStatus {
    PodRuntimeStatus { sandboxes: vec![PodSandboxStatus { id: "s".into(), ..Default::default() }], containers }
}

fn plan_of(pod: &Pod, runtime_status: &PodRuntimeStatus) -> PodActions {
    let now = Timestamp::from_second(1001).unwrap();
    compute_pod_actions(&PodActionInput {
        pod,
        runtime_status,
        backoffs: &KeyedBackoff::default(),
        busy: &HashSet::new(),
        has_tasks: false,
        health: &HashMap::new(),
        now,
    })
}

fn started(plan: &PodActions) -> Vec<(&str, u32)> {
    let step = |step| match step {
        &PodAction::StartContainer { ref name, attempt, .. } => Some((name.as_str(), attempt)),
        _ => None,
    };
    plan.actions.iter().filter_map(step).collect()
}

use ContainerState::{ContainerExited as Exited, ContainerRunning as Running};

#[test]
fn sandbox_precedes_init_containers_and_containers() {
    let pod = pod("Always");
    assert_eq!(plan_of(&pod, &PodRuntimeStatus::default()).actions, [PodAction::CreateSandbox { attempt: 0 }]);
    assert_eq!(started(&plan_of(&pod, &runtime_status(vec![]))), [("i", 0)]);
    assert_eq!(started(&plan_of(&pod, &runtime_status(vec![record("i", Running, 0, 0)]))), []);
    assert_eq!(started(&plan_of(&pod, &runtime_status(vec![record("i", Exited, 0, 0)]))), [("a", 0), ("b", 0)]);
}

#[test]
fn restart_policy_decides_whether_exited_containers_restart() {
    let ended = || vec![record("i", Exited, 0, 0), record("a", Exited, 0, 0), record("b", Exited, 1, 4)];
    assert_eq!(started(&plan_of(&pod("Always"), &runtime_status(ended()))), [("a", 1), ("b", 5)]);
    assert_eq!(started(&plan_of(&pod("OnFailure"), &runtime_status(ended()))), [("b", 5)]);
    assert!(plan_of(&pod("Never"), &runtime_status(ended())).finished);
    let failed_init = runtime_status(vec![record("i", Exited, 1, 0)]);
    assert!(plan_of(&pod("Never"), &failed_init).finished);
    assert_eq!(started(&plan_of(&pod("OnFailure"), &failed_init)), [("i", 1)]);
}

#[test]
fn second_crash_is_in_backoff() {
    let pod = pod("Always");
    let runtime_status =
        runtime_status(vec![record("i", Exited, 0, 0), record("a", Exited, 1, 0), record("b", Running, 0, 0)]);
    let (backoffs, busy, health) = (KeyedBackoff::default(), HashSet::new(), HashMap::new());
    let at = |second| PodActionInput {
        pod: &pod,
        runtime_status: &runtime_status,
        backoffs: &backoffs,
        busy: &busy,
        has_tasks: false,
        health: &health,
        now: Timestamp::from_second(second).unwrap(),
    };
    assert_eq!(started(&compute_pod_actions(&at(1000))), [("a", 1)]);
    let second = compute_pod_actions(&at(1001));
    assert_eq!(started(&second), []);
    assert_eq!(second.crash_backoffs, [("a".to_string(), Duration::from_secs(10))]);
    assert_eq!(second.next_check, Some(Duration::from_secs(9)));
    assert_eq!(started(&compute_pod_actions(&at(1010))), [("a", 1)]);
}

#[test]
fn new_sandbox_restarts_everything() {
    let pod = pod("Always");
    let mut containers = vec![record("i", Exited, 0, 0), record("a", Exited, 137, 0)];
    containers.iter_mut().for_each(|record| record.sandbox = "older".into());
    assert_eq!(started(&plan_of(&pod, &runtime_status(containers))), [("i", 1)]);
}

#[test]
fn changed_image_kills_the_container() {
    let pod = pod("Always");
    let mut old = record("a", Running, 0, 0);
    old.status.annotations.insert(labels::HASH.into(), "other".into());
    let mut same = record("b", Running, 0, 0);
    let hash = container_hash(&pod.spec.as_ref().unwrap().containers[1]);
    same.status.annotations.insert(labels::HASH.into(), hash);
    let plan = plan_of(&pod, &runtime_status(vec![record("i", Exited, 0, 0), old, same]));
    assert_eq!(plan.actions, [PodAction::KillContainer { name: "a".into(), id: "a-0".into() }]);
}

#[test]
fn sidecar_runs_beside_regular_containers() {
    let mut pod = pod("Never");
    let spec = pod.spec.as_mut().unwrap();
    spec.init_containers.as_mut().unwrap()[0].restart_policy = Some("Always".into());
    assert_eq!(started(&plan_of(&pod, &runtime_status(vec![]))), [("i", 0)]);
    assert_eq!(started(&plan_of(&pod, &runtime_status(vec![record("i", Running, 0, 0)]))), [("a", 0), ("b", 0)]);
    let died = vec![record("i", Exited, 1, 0), record("a", Running, 0, 0), record("b", Running, 0, 0)];
    assert_eq!(started(&plan_of(&pod, &runtime_status(died))), [("i", 1)]);
    let over = vec![record("i", Running, 0, 0), record("a", Exited, 0, 0), record("b", Exited, 0, 0)];
    assert!(plan_of(&pod, &runtime_status(over)).finished);
    let unstarted = runtime_status(vec![record("i", Running, 0, 0)]);
    let health = HashMap::from([("i-0".to_string(), ContainerHealth { started: false, ready: false })]);
    let (backoffs, busy) = (KeyedBackoff::default(), HashSet::new());
    let now = Timestamp::from_second(1001).unwrap();
    let input = PodActionInput {
        pod: &pod,
        runtime_status: &unstarted,
        backoffs: &backoffs,
        busy: &busy,
        has_tasks: false,
        health: &health,
        now,
    };
    assert_eq!(started(&compute_pod_actions(&input)), [], "its startup probe has not succeeded");
}

#[test]
fn restart_rule_removes_all_containers_and_its_cause_last() {
    let mut pod = pod("Never");
    let rule = json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    pod.spec.as_mut().unwrap().containers[0].restart_policy_rules = serde_json::from_value(rule).unwrap();
    let others = || [record("b", Running, 0, 0), record("i", Exited, 0, 0)];
    let running = plan_of(&pod, &runtime_status([vec![record("a", Exited, 0, 0)], others().into()].concat()));
    assert_eq!((running.actions, running.finished), (vec![], false));
    let plan = plan_of(&pod, &runtime_status([vec![record("a", Exited, 42, 0)], others().into()].concat()));
    let reset = |name: &str, kill| ContainerReset { name: name.into(), id: format!("{name}-0"), kill };
    let containers = vec![reset("b", true), reset("i", false), reset("a", false)];
    assert_eq!(plan.actions, [PodAction::ResetContainers { containers }]);
}
