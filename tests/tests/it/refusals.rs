//! Impossible requests are rejected with a remedy and change nothing.

use std::{fs, net::TcpListener, path::Path, process::Command};

use ferry_tests::{TestCluster, TestHost, eventually, machine, run_command, skip_reason};

/// Every file under a directory with its contents.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            out.extend(contents(&entry.path()));
        } else {
            out.push((entry.path().display().to_string(), fs::read(entry.path()).unwrap_or_default()));
        }
    }
    out.sort();
    out
}

#[test]
fn without_root_it_says_so() {
    if skip_reason().is_some() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let binary = dir.path().join("ferry");
    fs::copy(machine::built_program("ferry"), &binary).expect("copied");
    run_command(Command::new("chmod").args(["-R", "a+rx"]).arg(dir.path()), None).expect_success();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    let told = run_command(command.args(["up", "--data-dir", "/tmp/ferry-not-root"]), None).expect_failure();
    assert!(told.contains("root"), "{told}");
    assert!(!Path::new("/tmp/ferry-not-root").exists());
}

#[test]
fn a_busy_port_is_named() {
    if skip_reason().is_some() {
        return;
    }
    let host = TestHost::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    // The listener is in this process' network, so ferry is started there too; it ends before it touches anything.
    let data = host.data_dir();
    let mut command = Command::new(machine::built_program("ferry"));
    command.args(["up", "--install-runtime", "--port", &port, "--data-dir"]).arg(&data);
    let told = run_command(command.arg("--kubeconfig").arg(host.file("kubeconfig")), None).expect_failure();
    assert!(told.contains(&port) && told.contains("in use"), "{told}");
    assert!(!data.exists() && !host.file("kubeconfig").exists(), "nothing was made");
}

#[test]
fn a_missing_runtime_is_explained() {
    if skip_reason().is_some() {
        return;
    }
    let host = TestHost::new();
    let endpoint = format!("unix://{}", host.file("no.sock").display());
    let kubeconfig = host.file("kubeconfig");
    let told = host
        .ferry(&["up", "--runtime-endpoint", &endpoint, "--kubeconfig", kubeconfig.to_str().expect("text")])
        .expect_failure();
    assert!(told.contains("--install-runtime") && told.contains("no.sock"), "{told}");
    assert!(!host.data_dir().exists() && !kubeconfig.exists(), "nothing was made");
}

#[test]
fn a_corrupt_data_directory_is_refused() {
    if skip_reason().is_some() {
        return;
    }
    let host = TestHost::new();
    let store = host.data_dir().join("store");
    fs::create_dir_all(&store).expect("made");
    fs::write(store.join("checkpoint-0000000000000001"), vec![0x5a; 65536]).expect("written");
    let before = contents(&host.data_dir());
    let kubeconfig = host.file("kubeconfig");
    let told =
        host.ferry(&["up", "--install-runtime", "--kubeconfig", kubeconfig.to_str().expect("text")]).expect_failure();
    assert!(told.contains("checkpoint-0000000000000001"), "{told}");
    assert_eq!(contents(&host.data_dir()), before, "not a byte changed");
    assert!(!kubeconfig.exists());
}

#[test]
fn bad_pods_and_a_second_up_are_explained() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    let again = cluster.start().expect_failure();
    assert!(again.contains("already"), "{again}");
    cluster.kubectl("get nodes").expect_success();

    cluster.kubectl("create deployment absent --image=nowhere.invalid/absent:1").expect_success();
    cluster.kubectl_args(&["create", "-f", "-"], Some(GREEDY)).expect_success();
    let mut seen = Vec::new();
    eventually("ErrImagePull, then ImagePullBackOff", || {
        let pod = cluster.get("pods -l app=absent").into_iter().next().ok_or("no pod")?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default().to_owned();
        if reason == "ErrImagePull" {
            assert!(waiting["message"].as_str().is_some_and(|m| m.contains("nowhere.invalid")), "{waiting}");
        }
        seen.push(reason);
        seen.iter().any(|reason| reason == "ImagePullBackOff").then_some(()).ok_or_else(|| waiting.to_string())
    });
    let events = cluster.kubectl("describe pods -l app=absent").expect_success();
    assert!(events.contains("Failed to pull image") && events.contains("ErrImagePull"), "{events}");

    eventually("Unschedulable", || {
        let pod = cluster.get("pod greedy").remove(0);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == "PodScheduled").ok_or_else(|| pod["status"].to_string())?;
        assert_eq!((found["status"].as_str(), found["reason"].as_str()), (Some("False"), Some("Unschedulable")));
        let message = found["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu"), "{message}");
        Ok(())
    });
    eventually("FailedScheduling", || {
        let events = cluster.kubectl("get events --field-selector involvedObject.name=greedy").expect_success();
        if events.contains("FailedScheduling") { Ok(()) } else { Err(events) }
    });
    cluster.kubectl("delete deployment absent").expect_success();
    cluster.running("app=absent", 0);
}

const GREEDY: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  containers:
  - name: c
    image: nginx
    resources: {requests: {cpu: "10000"}}
"#;
