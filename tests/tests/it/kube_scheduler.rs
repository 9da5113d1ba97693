//! The scheduler alone, under its upstream name, beside the API server: that schedulers which race do not overcommit nodes, that
//! nodes and pods may vanish meanwhile, and profiles, policies and refusals of the command line.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use ferry_tests::{TestApiServer, eventually, machine};
use serde_json::{Value, json};

/// A scheduler, until it is dropped.
struct Scheduler {
    child: Child,
}

impl Scheduler {
    fn start(server: &TestApiServer, name: &str, flags: &[String]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let log = File::create(server.file(&format!("{name}.log"))).expect("a log");
        let mut command = Command::new(machine::built_program("ferry"));
        command.args(["kube-scheduler", "--bind-address=127.0.0.1", "--leader-elect=false"]);
        command.arg(format!("--kubeconfig={}", server.kubeconfig().display()));
        command.arg(format!("--secure-port={port}")).args(flags);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        Self { child: command.spawn().expect("ferry starts") }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An API server that needs no controllers for pods to be created and nodes to be usable.
fn start_server() -> TestApiServer {
    TestApiServer::start_with(&["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into()])
}

fn apply(server: &TestApiServer, items: Vec<Value>) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    server.kubectl_args(&["create", "-f", "-"], Some(&list)).expect_success();
}

fn node(name: &str) -> Value {
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn pod(name: &str, scheduler: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "race"}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "example.com/c", "resources": {"requests": {"cpu": "1"}}}]}})
}

/// Pods by node; those without a node are under the empty name.
fn placement(server: &TestApiServer) -> BTreeMap<String, usize> {
    let template = "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    let nodes = server.kubectl_args(&["get", "pods", "-l", "app=race", "-o", template], None);
    let mut counts = BTreeMap::new();
    for line in nodes.expect_success().lines() {
        *counts.entry(line.to_owned()).or_insert(0) += 1;
    }
    counts
}

#[track_caller]
fn expect_bound(server: &TestApiServer, bound: usize, waiting: usize) {
    eventually(&format!("{bound} pods bound, {waiting} waiting"), || {
        let placement = placement(server);
        let unbound = placement.get("").copied().unwrap_or(0);
        let all: usize = placement.values().sum();
        if (all - unbound, unbound) == (bound, waiting) { Ok(()) } else { Err(format!("{placement:?}")) }
    });
    let placement = placement(server);
    let overcommitted = placement.iter().find(|(node, pods)| !node.is_empty() && **pods > 4);
    assert!(overcommitted.is_none(), "{placement:?}");
}

#[test]
fn racing_schedulers_do_not_bind_twice_and_vanishing_nodes_strand_no_pod() {
    let server = start_server();
    let other = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                 leaderElection: {leaderElect: false}\nprofiles: [{schedulerName: other}]\n";
    let file = server.file("other.yaml");
    fs::write(&file, other).expect("written");
    let _schedulers = [
        Scheduler::start(&server, "first", &[]),
        Scheduler::start(&server, "other", &[format!("--config={}", file.display())]),
    ];
    apply(&server, (0..5).map(|number| node(&format!("node-{number}"))).collect());
    apply(&server, (0..8).map(|number| pod(&format!("default-{number}"), "default-scheduler")).collect());
    expect_bound(&server, 8, 0);
    apply(&server, (0..6).map(|number| pod(&format!("other-{number}"), "other")).collect());
    expect_bound(&server, 14, 0);
    server.kubectl("delete node node-0").expect_success();
    apply(&server, (8..30).map(|number| pod(&format!("default-{number}"), "default-scheduler")).collect());
    server.kubectl("delete pod default-29 --wait=false --grace-period=0 --force").expect_success();
    apply(&server, (5..10).map(|number| node(&format!("node-{number}"))).collect());
    eventually("all pods bound", || match placement(&server).get("") {
        None => Ok(()),
        Some(waiting) => Err(format!("{waiting} waiting")),
    });
    expect_bound(&server, 35, 0);
}

#[test]
fn two_schedulers_of_one_name_bind_each_pod_once() {
    let server = start_server();
    let _schedulers = [Scheduler::start(&server, "first", &[]), Scheduler::start(&server, "second", &[])];
    apply(&server, (0..20).map(|number| node(&format!("node-{number}"))).collect());
    apply(&server, (0..40).map(|number| pod(&format!("pod-{number}"), "default-scheduler")).collect());
    eventually("40 pods bound", || match placement(&server).get("") {
        None => Ok(()),
        Some(waiting) => Err(format!("{waiting} waiting")),
    });
    let template = "jsonpath={range .items[?(@.reason==\"Scheduled\")]}{.regarding.name}{\"\\n\"}{end}";
    let scheduled = server.kubectl_args(&["get", "events.events.k8s.io", "-o", template], None);
    let mut names: Vec<String> = scheduled.expect_success().lines().map(str::to_owned).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a pod was bound twice");
}

#[test]
fn restarts_of_the_api_server_strand_no_pod_and_overcommit_no_node() {
    let mut server = start_server();
    let _scheduler = Scheduler::start(&server, "scheduler", &[]);
    apply(&server, (0..20).map(|number| node(&format!("node-{number}"))).collect());
    for batch in 0..3 {
        apply(&server, (0..20).map(|number| pod(&format!("pod-{batch}-{number}"), "default-scheduler")).collect());
        server.restart(Duration::from_millis(500));
    }
    expect_bound(&server, 60, 0);
    apply(&server, (0..30).map(|number| pod(&format!("late-{number}"), "default-scheduler")).collect());
    expect_bound(&server, 80, 10);
    server
        .kubectl("delete pods -l app=race --field-selector=spec.nodeName=node-0 --wait=false --grace-period=0 --force")
        .expect_success();
    expect_bound(&server, 80, 6);
}

#[test]
fn devices_are_allocated_to_claims_whose_parameters_stay_as_written() {
    let server = start_server();
    let _scheduler = Scheduler::start(&server, "scheduler", &[]);
    let resource = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let pool = json!({"name": "node", "generation": 1, "resourceSliceCount": 1});
    let devices = json!({"driver": "gpu.example.com", "nodeName": "node", "pool": pool, "devices": [{"name": "a"}]});
    apply(
        &server,
        vec![node("node"), resource("DeviceClass", "gpu", json!({})), resource("ResourceSlice", "devices", devices)],
    );
    let claim = r#"{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}],
        "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"kind":   "x"}}}]}}}"#;
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    server.kubectl_args(&["create", "--raw", path, "-f", "-"], Some(claim)).expect_success();
    let mut pod = pod("pod", "default-scheduler");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "claim"}]);
    apply(&server, vec![pod]);
    expect_bound(&server, 1, 0);
    let template = "jsonpath={.status.allocation.devices.results[0].device} {.status.reservedFor[0].name} {.metadata.finalizers[0]}";
    let claim = server.kubectl_args(&["get", "resourceclaim", "claim", "-o", template], None);
    assert_eq!(claim.expect_success(), "a pod resource.kubernetes.io/delete-protection");
}

#[test]
fn gang_is_scheduled_all_or_none() {
    let server = TestApiServer::start_with(&[
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
        "--feature-gates=GenericWorkload=true".into(),
        "--runtime-config=scheduling.k8s.io/v1alpha2=true".into(),
    ]);
    let _scheduler =
        Scheduler::start(&server, "scheduler", &["--feature-gates=GenericWorkload=true,GangScheduling=true".into()]);
    let member = |name: &str| {
        let mut pod = pod(name, "default-scheduler");
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "gang"});
        pod
    };
    // Four pods fit on a node, and the gang needs six.
    apply(&server, vec![node("node-0")]);
    apply(&server, (0..3).map(|number| member(&format!("gang-{number}"))).collect());
    apply(&server, vec![pod("single", "default-scheduler")]);
    expect_bound(&server, 1, 3);
    let policy = json!({"gang": {"minCount": 6}});
    let group = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": policy}});
    apply(&server, vec![group]);
    apply(&server, (3..6).map(|number| member(&format!("gang-{number}"))).collect());
    let condition = |expected: &str| {
        let template = "jsonpath={.status.conditions[0].status} {.status.conditions[0].reason}";
        eventually("the condition of the group", || {
            let text = server.kubectl_args(&["get", "podgroup", "gang", "-o", template], None).expect_success();
            if text == expected { Ok(()) } else { Err(text) }
        });
    };
    condition("False Unschedulable");
    expect_bound(&server, 1, 6);
    apply(&server, vec![node("node-1")]);
    expect_bound(&server, 7, 0);
    condition("True Scheduled");
}
