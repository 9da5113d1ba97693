//! Ferry alone is killed and started again: objects and container processes are the same, and the walk goes on.

use std::{collections::BTreeSet, fs, process::Stdio};

use ferry_tests::{TestCluster, eventually, machine, skip_reason};
use serde_json::Value;

pub fn containers(pods: &[Value]) -> BTreeSet<String> {
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned();
    pods.iter().map(id).collect()
}

/// The processes of the containers of pods.
fn processes(pods: &[Value]) -> BTreeSet<u32> {
    containers(pods).iter().flat_map(|id| machine::container_processes(id)).collect()
}

#[test]
fn containers_outlive_ferry() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    cluster.kubectl("create deployment nginx --image=nginx --replicas=3").expect_success();
    let before = cluster.running("app=nginx", 3);
    let tasks = processes(&before);
    assert!(tasks.len() >= 3, "{tasks:?}");
    let uids: Vec<Value> = before.iter().map(|pod| pod["metadata"]["uid"].clone()).collect();

    cluster.kubectl("scale deployment nginx --replicas=5").expect_success();
    cluster.host.end_ferry("-9");
    assert_eq!(cluster.host.ferry(&["status"]).code, 3, "status says that it does not run");
    cluster.start().expect_success();

    let after = cluster.running("app=nginx", 5);
    assert!(uids.iter().all(|uid| after.iter().any(|pod| pod["metadata"]["uid"] == *uid)), "same objects");
    assert!(containers(&before).is_subset(&containers(&after)), "same containers");
    assert!(tasks.is_subset(&processes(&before)), "same processes");
    let restarts = after.iter().map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_i64());
    assert!(restarts.into_iter().all(|count| count == Some(0)));

    end_with_grace(&cluster);
    assert!(tasks.is_subset(&processes(&before)), "same processes");

    cluster.kubectl("delete deployment nginx").expect_success();
    cluster.running("app=nginx", 0);
}

/// SIGTERM in the background, then Ctrl-C in the foreground; a cluster runs again afterwards.
fn end_with_grace(cluster: &TestCluster) {
    cluster.host.end_ferry("-TERM");
    let data = cluster.host.data_dir();
    let arguments = ["up", "--foreground", "--data-dir", data.to_str().expect("text")];
    let output = cluster.host.file("foreground.out");
    let out = fs::File::create(&output).expect("a file");
    let mut command = cluster.host.prepared(machine::built_program("ferry"), &arguments);
    command.arg("--kubeconfig").arg(cluster.host.file("kubeconfig"));
    let mut foreground = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).spawn().expect("ferry runs");
    eventually("a cluster in the foreground", || {
        let told = fs::read_to_string(&output).unwrap_or_default();
        if told.contains("The cluster is up") { Ok(()) } else { Err(told) }
    });
    cluster.host.signal_ferry("-INT");
    assert!(foreground.wait().expect("it ends").success(), "Ctrl-C is an ordinary end");
    cluster.start().expect_success();
}
