//! Drives the computation with specs and made-up truths.

use super::*;
use runtime::cri::types::{self, ContainerMetadata, PodSandboxNetworkStatus, PodSandboxStatus};
use serde_json::json;

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "u", "generation": 1 },
        "spec": { "restartPolicy": policy, "containers": [{ "name": "c", "image": "web" }] },
        "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }] } }))
    .unwrap()
}

fn seen(state: types::ContainerState, exit_code: i32, attempt: u32) -> Seen {
    let status = types::ContainerStatus {
        id: format!("c{attempt}"),
        metadata: Some(ContainerMetadata { name: "c".into(), attempt }),
        state: state as i32,
        exit_code,
        started_at: 1_000_000_000,
        finished_at: 2_000_000_000,
        ..Default::default()
    };
    Seen { sandbox: "s".into(), status }
}

fn truth(containers: Vec<Seen>) -> Truth {
    let network = PodSandboxNetworkStatus { ip: "10.0.0.9".into(), ..Default::default() };
    let sandbox = PodSandboxStatus { id: "s".into(), network: Some(network), ..Default::default() };
    Truth { sandboxes: vec![sandbox], containers }
}

fn check(pod: &Pod, truth: &Truth, waiting: Option<Waiting>, terminal: bool) -> PodStatus {
    let waiting = waiting.map(|waiting| ("c".to_string(), waiting)).into_iter().collect();
    compute(&View {
        pod,
        last: None,
        truth,
        waiting: &waiting,
        health: &HashMap::new(),
        messages: &HashMap::new(),
        verdict: None,
        terminal,
        host_ip: "192.0.2.1",
        runtime_name: "containerd",
        now: Timestamp::from_second(100).unwrap(),
    })
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind).map_or("absent", |condition| &condition.status)
}

use types::ContainerState::{ContainerExited as Exited, ContainerRunning as Running};

#[test]
fn a_running_pod_is_ready_and_stays_the_same() {
    let mut pod = pod("Always");
    let status = check(&pod, &truth(vec![seen(Running, 0, 0)]), None, false);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.9"));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.container_id.as_deref(), Some("containerd://c0"));
    assert!(container.ready);
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&status, kind), "True", "{kind}");
    }
    pod.status = Some(status.clone());
    let again = check(&pod, &truth(vec![seen(Running, 0, 0)]), None, false);
    assert_eq!(again, status, "times do not move");
}

#[test]
fn a_new_pod_waits() {
    let status = check(&pod("Always"), &Truth::default(), None, false);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let state = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().reason.as_deref(), Some("ContainerCreating"));
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "False");
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [c]"));
}

#[test]
fn a_crashing_container_shows_how_it_died() {
    let waiting = Waiting { reason: "CrashLoopBackOff", message: "back-off 10s".into() };
    let status = check(&pod("Always"), &truth(vec![seen(Exited, 1, 3)]), Some(waiting), false);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 3);
    assert_eq!(container.state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (1, Some("Error")));
}

#[test]
fn a_finished_pod_has_succeeded_or_failed() {
    let phase = |policy: &str, code, terminal| {
        check(&pod(policy), &truth(vec![seen(Exited, code, 0)]), None, terminal).phase.unwrap()
    };
    assert_eq!(phase("Never", 0, false), "Succeeded");
    assert_eq!(phase("Never", 1, false), "Failed");
    assert_eq!(phase("OnFailure", 1, false), "Running");
    assert_eq!(phase("Always", 0, false), "Running");
    assert_eq!(phase("Always", 143, true), "Failed");
    assert_eq!(check(&pod("Always"), &Truth::default(), None, true).phase.unwrap(), "Failed");
}
