//! Tests with synthetic specs and runtime statuses.

use super::*;
use runtime::cri::types::{self, ContainerMetadata, PodSandboxNetworkStatus, PodSandboxStatus};
use serde_json::json;

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "u", "generation": 1 },
        "spec": { "restartPolicy": policy, "containers": [{ "name": "c", "image": "web" }] },
        "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }] } }))
    .unwrap()
}

fn record(state: types::ContainerState, exit_code: i32, attempt: u32) -> ContainerRecord {
    let status = types::ContainerStatus {
        id: format!("c{attempt}"),
        metadata: Some(ContainerMetadata { name: "c".into(), attempt }),
        state: state as i32,
        exit_code,
        started_at: 1_000_000_000,
        finished_at: 2_000_000_000,
        ..Default::default()
    };
    ContainerRecord { sandbox: "s".into(), status }
}

fn runtime_status(containers: Vec<ContainerRecord>) -> PodRuntimeStatus {
    let network = PodSandboxNetworkStatus { ip: "10.0.0.9".into(), ..Default::default() };
    let sandbox = PodSandboxStatus { id: "s".into(), network: Some(network), ..Default::default() };
    PodRuntimeStatus { sandboxes: vec![sandbox], containers }
}

fn check(pod: &Pod, runtime_status: &PodRuntimeStatus, waiting: Option<WaitingReason>, terminal: bool) -> PodStatus {
    let waiting = waiting.map(|waiting| ("c".to_string(), waiting)).into_iter().collect();
    generate_pod_status(&PodStatusInput {
        restarting: false,
        recursive_read_only: false,
        actuated: None,
        pending_resize: None,
        resize_in_progress: None,
        pod,
        last_status: None,
        runtime_status,
        waiting: &waiting,
        health: &HashMap::new(),
        messages: &HashMap::new(),
        failure: None,
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
fn running_pod_is_ready_and_its_status_is_stable() {
    let mut pod = pod("Always");
    let status = check(&pod, &runtime_status(vec![record(Running, 0, 0)]), None, false);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.9"));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.container_id.as_deref(), Some("containerd://c0"));
    assert!(container.ready);
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&status, kind), "True", "{kind}");
    }
    pod.status = Some(status.clone());
    let again = check(&pod, &runtime_status(vec![record(Running, 0, 0)]), None, false);
    assert_eq!(again, status, "times do not move");
}

#[test]
fn new_pod_is_pending() {
    let status = check(&pod("Always"), &PodRuntimeStatus::default(), None, false);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let state = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().reason.as_deref(), Some("ContainerCreating"));
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "False");
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [c]"));
}

#[test]
fn crashing_container_reports_its_last_state() {
    let waiting = WaitingReason { reason: "CrashLoopBackOff", message: "back-off 10s".into() };
    let status = check(&pod("Always"), &runtime_status(vec![record(Exited, 1, 3)]), Some(waiting), false);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 3);
    assert_eq!(container.state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (1, Some("Error")));
}

#[test]
fn finished_pod_succeeds_or_fails() {
    let phase = |policy: &str, code, terminal| {
        check(&pod(policy), &runtime_status(vec![record(Exited, code, 0)]), None, terminal).phase.unwrap()
    };
    assert_eq!(phase("Never", 0, false), "Succeeded");
    assert_eq!(phase("Never", 1, false), "Failed");
    assert_eq!(phase("OnFailure", 1, false), "Running");
    assert_eq!(phase("Always", 0, false), "Running");
    assert_eq!(phase("Always", 143, true), "Failed");
    assert_eq!(check(&pod("Always"), &PodRuntimeStatus::default(), None, true).phase.unwrap(), "Failed");
}
