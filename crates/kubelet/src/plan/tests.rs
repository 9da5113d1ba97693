//! Drives the planner with specs and made-up truths.

use super::*;
use runtime::cri::types::{ContainerMetadata, ContainerStatus, PodSandboxStatus};
use serde_json::json;

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": { "restartPolicy": policy,
        "initContainers": [{ "name": "i", "image": "x" }],
        "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": "x" }] } }))
    .unwrap()
}

fn seen(name: &str, state: ContainerState, exit_code: i32, attempt: u32) -> Seen {
    let status = ContainerStatus {
        id: format!("{name}-{attempt}"),
        metadata: Some(ContainerMetadata { name: name.into(), attempt }),
        state: state as i32,
        exit_code,
        finished_at: 1_000_000_000_000,
        ..Default::default()
    };
    Seen { sandbox: "s".into(), status }
}

fn truth(containers: Vec<Seen>) -> Truth {
    Truth { sandboxes: vec![PodSandboxStatus { id: "s".into(), ..Default::default() }], containers }
}

fn plan_of(pod: &Pod, truth: &Truth) -> Plan {
    let now = Timestamp::from_second(1001).unwrap();
    plan(&Facts { pod, truth, backoffs: &Backoffs::default(), busy: &HashSet::new(), health: &HashMap::new(), now })
}

fn started(plan: &Plan) -> Vec<(&str, u32)> {
    let step = |step| match step {
        &Step::Start { ref name, attempt, .. } => Some((name.as_str(), attempt)),
        _ => None,
    };
    plan.steps.iter().filter_map(step).collect()
}

use ContainerState::{ContainerExited as Exited, ContainerRunning as Running};

#[test]
fn the_sandbox_is_first_then_init_containers_then_all_others() {
    let pod = pod("Always");
    assert_eq!(plan_of(&pod, &Truth::default()).steps, [Step::Sandbox { attempt: 0 }]);
    assert_eq!(started(&plan_of(&pod, &truth(vec![]))), [("i", 0)]);
    assert_eq!(started(&plan_of(&pod, &truth(vec![seen("i", Running, 0, 0)]))), []);
    assert_eq!(started(&plan_of(&pod, &truth(vec![seen("i", Exited, 0, 0)]))), [("a", 0), ("b", 0)]);
}

#[test]
fn what_ended_is_restarted_as_the_policy_says() {
    let ended = || vec![seen("i", Exited, 0, 0), seen("a", Exited, 0, 0), seen("b", Exited, 1, 4)];
    assert_eq!(started(&plan_of(&pod("Always"), &truth(ended()))), [("a", 1), ("b", 5)]);
    assert_eq!(started(&plan_of(&pod("OnFailure"), &truth(ended()))), [("b", 5)]);
    assert!(plan_of(&pod("Never"), &truth(ended())).finished);
    let failed_init = truth(vec![seen("i", Exited, 1, 0)]);
    assert!(plan_of(&pod("Never"), &failed_init).finished);
    assert_eq!(started(&plan_of(&pod("OnFailure"), &failed_init)), [("i", 1)]);
}

#[test]
fn a_second_crash_waits() {
    let pod = pod("Always");
    let truth = truth(vec![seen("i", Exited, 0, 0), seen("a", Exited, 1, 0), seen("b", Running, 0, 0)]);
    let (backoffs, busy, health) = (Backoffs::default(), HashSet::new(), HashMap::new());
    let at = |second| Facts {
        pod: &pod,
        truth: &truth,
        backoffs: &backoffs,
        busy: &busy,
        health: &health,
        now: Timestamp::from_second(second).unwrap(),
    };
    assert_eq!(started(&plan(&at(1000))), [("a", 1)]);
    let second = plan(&at(1001));
    assert_eq!(started(&second), []);
    assert_eq!(second.crashing, [("a".to_string(), Duration::from_secs(10))]);
    assert_eq!(second.again, Some(Duration::from_secs(9)));
    assert_eq!(started(&plan(&at(1010))), [("a", 1)]);
}

#[test]
fn a_new_sandbox_runs_everything_again() {
    let pod = pod("Always");
    let mut containers = vec![seen("i", Exited, 0, 0), seen("a", Exited, 137, 0)];
    containers.iter_mut().for_each(|seen| seen.sandbox = "older".into());
    assert_eq!(started(&plan_of(&pod, &truth(containers))), [("i", 1)]);
}

#[test]
fn a_changed_image_ends_the_container() {
    let pod = pod("Always");
    let mut old = seen("a", Running, 0, 0);
    old.status.annotations.insert(labels::HASH.into(), "other".into());
    let mut same = seen("b", Running, 0, 0);
    let hash = hash_of(&pod.spec.as_ref().unwrap().containers[1]);
    same.status.annotations.insert(labels::HASH.into(), hash);
    let plan = plan_of(&pod, &truth(vec![seen("i", Exited, 0, 0), old, same]));
    assert_eq!(plan.steps, [Step::Kill { name: "a".into(), id: "a-0".into() }]);
}

#[test]
fn a_sidecar_runs_beside_the_others() {
    let mut pod = pod("Never");
    let spec = pod.spec.as_mut().unwrap();
    spec.init_containers.as_mut().unwrap()[0].restart_policy = Some("Always".into());
    assert_eq!(started(&plan_of(&pod, &truth(vec![]))), [("i", 0)]);
    assert_eq!(started(&plan_of(&pod, &truth(vec![seen("i", Running, 0, 0)]))), [("a", 0), ("b", 0)]);
    let died = vec![seen("i", Exited, 1, 0), seen("a", Running, 0, 0), seen("b", Running, 0, 0)];
    assert_eq!(started(&plan_of(&pod, &truth(died))), [("i", 1)]);
    let over = vec![seen("i", Running, 0, 0), seen("a", Exited, 0, 0), seen("b", Exited, 0, 0)];
    assert!(plan_of(&pod, &truth(over)).finished);
    let unstarted = truth(vec![seen("i", Running, 0, 0)]);
    let health = HashMap::from([("i-0".to_string(), Health { started: false, ready: false })]);
    let (backoffs, busy) = (Backoffs::default(), HashSet::new());
    let now = Timestamp::from_second(1001).unwrap();
    let facts = Facts { pod: &pod, truth: &unstarted, backoffs: &backoffs, busy: &busy, health: &health, now };
    assert_eq!(started(&plan(&facts)), [], "its startup probe has not succeeded");
}
