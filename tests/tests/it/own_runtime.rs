//! Pods on the container runtime in ferry itself: no other daemon runs, containers outlive ferry, nothing is left behind.

use std::{fs, path::Path};

use ferry_tests::{TestCluster, TestHost, eventually, run_command, skip_reason};
use serde_json::Value;

use crate::restart::containers;

const FLAG: &str = "--container-runtime=ferry";

/// A pod with a command in the nginx image.
fn pod(name: &str, fields: &str, command: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"restartPolicy":"Never",{fields}
        "containers":[{{"name":"c","image":"nginx","command":["sh","-c",{command:?}]}}]}}}}"#
    )
}

#[track_caller]
fn run_to_end(cluster: &TestCluster, name: &str, phase: &str) -> Value {
    eventually(&format!("{name} to be {phase}"), || {
        let found = cluster.get(&format!("pod {name}"));
        if found[0]["status"]["phase"] == phase { Ok(found[0].clone()) } else { Err(found[0]["status"].to_string()) }
    })
}

#[test]
fn pods_run_without_another_daemon() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up_with(TestHost::new(), &[FLAG]);
    cluster.kubectl("create deployment nginx --image=nginx --replicas=3").expect_success();
    let before = cluster.running("app=nginx", 3);
    let runtime = cluster.get("nodes")[0]["status"]["nodeInfo"]["containerRuntimeVersion"].clone();
    assert!(runtime.as_str().is_some_and(|version| version.starts_with("ferry://")), "{runtime}");
    let address = before[0]["status"]["podIP"].as_str().expect("an address").to_owned();
    eventually("an answer", || cluster.http(&address).map(|line| assert!(line.contains("200"), "{line}")));

    check_commands(&cluster, before[0]["metadata"]["name"].as_str().expect("a name"));
    check_exits(&cluster);
    check_port_forward(&cluster, before[0]["metadata"]["name"].as_str().expect("a name"));

    cluster.host.end_ferry("-9");
    assert!(cluster.http(&address).is_ok(), "containers answer without ferry");
    cluster.start_again().expect_success();
    let after = cluster.running("app=nginx", 3);
    assert_eq!(containers(&before), containers(&after), "same containers");
    let restarts = after.iter().map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_i64());
    assert!(restarts.into_iter().all(|count| count == Some(0)));
    check_commands(&cluster, after[0]["metadata"]["name"].as_str().expect("a name"));

    cluster.kubectl("delete deployment nginx").expect_success();
    cluster.running("app=nginx", 0);
    cluster.kubectl("delete pod --all --now").expect_success();
    let runtime = cluster.host.data_dir().join("runtime");
    eventually("an empty runtime", || {
        let left: Vec<_> =
            ["containers", "sandboxes", "run"].iter().flat_map(|name| list(&runtime.join(name))).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    });
    cluster.host.ferry(&["down"]).expect_success();
}

fn list(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// Logs, exec with input and exit codes.
fn check_commands(cluster: &TestCluster, pod: &str) {
    let echoed = cluster.kubectl_args(&["exec", "-i", pod, "--", "sh", "-c", "cat; echo to stderr >&2"], Some("hello"));
    assert_eq!((echoed.stdout.as_str(), echoed.stderr.as_str()), ("hello", "to stderr\n"), "{}", echoed.code);
    let failed = cluster.kubectl_args(&["exec", pod, "--", "sh", "-c", "exit 7"], None);
    assert_eq!(failed.code, 7, "{}", failed.stderr);
    eventually("a log", || match cluster.kubectl(&format!("logs {pod}")) {
        told if told.code == 0 => Ok(()),
        told => Err(told.stderr),
    });
}

/// One port-forward serves requests one after the other.
fn check_port_forward(cluster: &TestCluster, pod: &str) {
    let script = format!(
        "exec 4< <(exec kubectl port-forward {pod} :80); forward=$!; read -r line <&4; port=${{line#*:}}; port=${{port%% *}}
         for i in 1 2 3; do
           exec 3<>/dev/tcp/127.0.0.1/$port; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3; exec 3>&-; sleep 0.5
         done; kill $forward"
    );
    let told = run_command(&mut cluster.prepared("bash", &["-c", &script]), None).expect_success();
    assert_eq!(told.matches("200 OK").count(), 3, "{told}");
}

/// Exit codes, messages and reasons of containers that end.
fn check_exits(cluster: &TestCluster) {
    let oom = r#""securityContext":{"runAsUser":1000},"#;
    for (name, fields, command, phase, code, reason) in [
        ("done", "", "echo fine; id", "Succeeded", 0, "Completed"),
        ("failed", oom, "echo bad; exit 3", "Failed", 3, "Error"),
        ("missing", "", "exec /does/not/exist", "Failed", 127, "Error"),
    ] {
        cluster.kubectl_args(&["create", "-f", "-"], Some(&pod(name, fields, command))).expect_success();
        let ended = run_to_end(cluster, name, phase);
        let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&state["exitCode"], &state["reason"]), (&code.into(), &reason.into()), "{name}");
    }
    assert!(cluster.kubectl("logs done").expect_success().starts_with("fine\nuid=0(root)"));
    assert_eq!(cluster.kubectl("logs failed").expect_success(), "bad\n");
}
