//! The CPU manager on a node with four CPUs.

use serde_json::{Value, json};

use super::{topology::CpuPlace, *};

/// Four CPUs, each a core of its own.
fn topology() -> CpuTopology {
    CpuTopology((0..4).map(|cpu| (cpu, CpuPlace { core: cpu, ..CpuPlace::default() })).collect())
}

fn start(dir: &Path, reserved_millis: i64) -> Result<Option<CpuManager>, CpuManagerError> {
    let settings = CpuManagerSettings { is_static: true, ..CpuManagerSettings::default() };
    CpuManager::start(&settings, topology(), reserved_millis, dir)
}

fn manager(dir: &Path) -> CpuManager {
    start(dir, 500).unwrap().unwrap()
}

fn container(name: &str, cpu: &str) -> Value {
    json!({ "name": name, "resources": { "limits": { "cpu": cpu, "memory": "1Gi" } } })
}

/// A pod that is admitted: its directory is made later.
fn pod(uid: &str, spec: Value) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": uid, "uid": uid }, "spec": spec })).unwrap()
}

fn cpus(manager: &CpuManager, uid: &str, container: &str) -> String {
    manager.cpus_of(uid, container).to_string()
}

#[test]
fn whole_cpus_of_guaranteed_pods_are_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut manager = manager(dir.path());
    assert_eq!(cpus(&manager, "x", "c"), "0-3");
    let spec = json!({ "containers": [container("a", "2"), container("b", "500m")] });
    manager.allocate_pod(&pod("p", spec)).unwrap();
    assert_eq!([cpus(&manager, "p", "a"), cpus(&manager, "p", "b")], ["1-2", "0,3"]);
    assert!(manager.has_own_cpus("p", "a") && !manager.has_own_cpus("p", "b"));
    let burstable = json!({ "containers": [{ "name": "a", "resources": { "requests": { "cpu": "1" } } }] });
    manager.allocate_pod(&pod("q", burstable)).unwrap();
    assert_eq!(cpus(&manager, "q", "a"), "0,3");
    let too_many = manager.allocate_pod(&pod("r", json!({ "containers": [container("a", "2")] })));
    let message = "not enough cpus available to satisfy request: requested=2, available=1";
    assert_eq!(too_many.unwrap_err().to_string(), message);
    manager.release_pod("p");
    assert_eq!(cpus(&manager, "q", "a"), "0-3");
}

#[test]
fn cpus_of_init_containers_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut manager = manager(dir.path());
    let mut sidecar = container("side", "1");
    sidecar["restartPolicy"] = "Always".into();
    let spec = json!({ "initContainers": [container("init", "2"), sidecar], "containers": [container("main", "2")] });
    manager.allocate_pod(&pod("p", spec)).unwrap();
    assert_eq!(cpus(&manager, "p", "init"), "1-2");
    assert_eq!([cpus(&manager, "p", "side"), cpus(&manager, "p", "main")], ["1", "2-3"]);
}

#[test]
fn assignments_survive_a_restart_until_the_pod_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let one = || json!({ "containers": [container("c", "1")] });
    let mut first = manager(dir.path());
    first.allocate_pod(&pod("p", one())).unwrap();
    first.allocate_pod(&pod("q", one())).unwrap();
    assert_eq!([cpus(&first, "p", "c"), cpus(&first, "q", "c")], ["1", "2"]);
    fs::create_dir_all(dir.path().join("pods/q")).unwrap();
    let second = manager(dir.path());
    assert_eq!([cpus(&second, "q", "c"), cpus(&second, "p", "c")], ["2", "0-1,3"]);
}

#[test]
fn faults_of_configuration_and_state_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |millis| start(dir.path(), millis).unwrap_err().to_string();
    assert!(fails(0).contains("requires reserved CPUs"));
    assert!(fails(5000).contains("requested=5, available=4"));
    let state = json!({ "policyName": "static", "cpus": "0-7", "entries": {} });
    fs::write(dir.path().join(STATE_FILE), state.to_string()).unwrap();
    assert!(fails(1000).contains("doesn't match with CPUs in state 0-7"));
    let state = json!({ "policyName": "static", "cpus": "0-3", "entries": { "p": { "c": "0" } } });
    fs::write(dir.path().join(STATE_FILE), state.to_string()).unwrap();
    assert!(fails(1000).contains("CPUs 0 cannot be assigned"));
}
