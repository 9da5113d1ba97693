//! Ferry alone is killed and started again: objects and container processes are the same, and the walk goes on.

use std::{collections::BTreeSet, fs, process::Command};

use ferry_tests::{Cluster, run, skip_reason};
use serde_json::Value;

fn containers(pods: &[Value]) -> BTreeSet<String> {
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default().to_owned();
    pods.iter().map(id).collect()
}

/// The processes of the containers, by the runtime's own account.
fn processes(cluster: &Cluster) -> BTreeSet<String> {
    let socket = cluster.host.data_dir().join("containerd/containerd.sock");
    let socket = socket.to_str().expect("text");
    let tasks = run(Command::new("ctr").args(["-a", socket, "-n", "k8s.io", "tasks", "list"]), None).ok();
    tasks.lines().skip(1).map(str::to_owned).collect()
}

fn kill_ferry(cluster: &Cluster) {
    let text = fs::read_to_string(cluster.host.data_dir().join("ferry.pid")).expect("a pid file");
    let pid = text.split_whitespace().next().expect("a pid");
    run(Command::new("kill").args(["-9", pid]), None).ok();
}

#[test]
fn containers_outlive_ferry() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = Cluster::up();
    cluster.kubectl("create deployment nginx --image=nginx --replicas=3").ok();
    let before = cluster.running("app=nginx", 3);
    let tasks = processes(&cluster);
    let uids: Vec<Value> = before.iter().map(|pod| pod["metadata"]["uid"].clone()).collect();

    cluster.kubectl("scale deployment nginx --replicas=5").ok();
    kill_ferry(&cluster);
    assert_eq!(cluster.host.ferry(&["status"]).code, 3, "status says that it does not run");
    cluster.start().ok();

    let after = cluster.running("app=nginx", 5);
    assert!(uids.iter().all(|uid| after.iter().any(|pod| pod["metadata"]["uid"] == *uid)), "same objects");
    assert!(containers(&before).is_subset(&containers(&after)), "same containers");
    assert!(tasks.is_subset(&processes(&cluster)), "same processes");
    let restarts = after.iter().map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_i64());
    assert!(restarts.into_iter().all(|count| count == Some(0)));

    cluster.kubectl("delete deployment nginx").ok();
    cluster.running("app=nginx", 0);
}
