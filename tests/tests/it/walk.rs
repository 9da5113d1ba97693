//! The walk: a Deployment from creation to removal, with the unmodified kubectl and real containers.

use std::{collections::BTreeSet, process::Command};

use ferry_tests::{TestCluster, eventually, machine, run_command, skip_reason};
use serde_json::Value;

#[test]
fn a_deployment_lives() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    create_three(&cluster);
    read_in_every_form(&cluster);
    logs_and_exec(&cluster);
    restart_a_killed_container(&cluster);
    replace_a_deleted_pod(&cluster);
    scale(&cluster);
    roll_over(&cluster);
    remove(&cluster);
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn create_three(cluster: &TestCluster) {
    cluster.kubectl("create deployment nginx --image=nginx --replicas=3").expect_success();
    cluster.kubectl("wait --for=condition=Available --timeout=90s deployment/nginx").expect_success();
    let pods = cluster.running("app=nginx", 3);
    let addresses: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/status/podIP")).collect();
    assert_eq!(addresses.len(), 3, "every pod has an address of its own: {addresses:?}");
    for address in addresses {
        let status = eventually("an answer from nginx", || cluster.http(address));
        assert_eq!(status, "HTTP/1.1 200 OK", "{address}");
    }
    let node = text(&pods[0], "/spec/nodeName");
    assert!(!node.is_empty() && pods.iter().all(|pod| text(pod, "/spec/nodeName") == node));
    reach_each_other(cluster, &pods);
}

/// From inside a pod: another pod, and the host it runs on.
fn reach_each_other(cluster: &TestCluster, pods: &[Value]) {
    let from = text(&pods[0], "/metadata/name");
    let ask = |address: &str, port: u16, request: &str| {
        let script = format!("exec 3<>/dev/tcp/{address}/{port} && printf '{request}' >&3 && head -1 <&3");
        cluster.kubectl_args(&["exec", from, "--", "bash", "-c", &script], None).expect_success()
    };
    let answer = ask(text(&pods[1], "/status/podIP"), 80, "GET / HTTP/1.0\\r\\n\\r\\n");
    assert!(answer.contains("200 OK"), "{answer}");
    // Plain text to the kubelet's TLS port: any answer will do.
    ask(text(&pods[0], "/status/hostIP"), 10250, "\\n");
}

/// The kubelet's own numbers, through the API server.
fn say_what_containers_use(cluster: &TestCluster) {
    let node = cluster.kubectl("get nodes -o jsonpath={.items[0].metadata.name}").expect_success();
    let page = cluster.kubectl(&format!("get --raw /api/v1/nodes/{node}/proxy/metrics/resource")).expect_success();
    for (name, labels) in [
        ("container_cpu_usage_seconds_total", "{container=\"nginx\",namespace=\"default\",pod=\"nginx-"),
        ("container_memory_working_set_bytes", "{container=\"nginx\",namespace=\"default\",pod=\"nginx-"),
        ("container_start_time_seconds", "{container=\"nginx\",namespace=\"default\",pod=\"nginx-"),
        ("pod_cpu_usage_seconds_total", "{namespace=\"default\",pod=\"nginx-"),
        ("pod_memory_working_set_bytes", "{namespace=\"default\",pod=\"nginx-"),
    ] {
        let count = page.lines().filter(|line| line.starts_with(&format!("{name}{labels}"))).count();
        assert_eq!(count, 3, "{name}: {page}");
    }
    assert!(
        page.contains("\nnode_cpu_usage_seconds_total ") && page.ends_with("\nresource_scrape_error 0\n"),
        "{page}"
    );
}

fn read_in_every_form(cluster: &TestCluster) {
    let table = cluster.kubectl("get deployments").expect_success();
    assert!(table.lines().next().is_some_and(|head| head.starts_with("NAME")), "{table}");
    assert!(table.contains("3/3"), "{table}");
    let wide = cluster.kubectl("get pods -o wide").expect_success();
    assert_eq!(wide.lines().filter(|line| line.contains("Running")).count(), 3, "{wide}");
    let yaml = cluster.kubectl("get deployment nginx -o yaml").expect_success();
    assert!(yaml.contains("kind: Deployment") && yaml.contains("image: nginx"), "{yaml}");
    let path = cluster.kubectl("get pods -o jsonpath={.items[*].status.phase}").expect_success();
    assert_eq!(path, "Running Running Running");
    let told = cluster.kubectl("describe deployment nginx").expect_success();
    assert!(told.contains("ScalingReplicaSet") && told.contains("3 available"), "{told}");
    let told = cluster.kubectl("describe pods --show-events=true").expect_success();
    assert!(told.contains("Started container") || told.contains("Container started"), "{told}");
    let told = cluster.kubectl("describe nodes").expect_success();
    assert!(told.contains("Ready") && told.contains("Non-terminated Pods"), "{told}");
    say_what_containers_use(cluster);
    assert!(cluster.kubectl("get all").expect_success().contains("replicaset.apps/nginx-"));
    assert!(cluster.kubectl("get events").expect_success().contains("Scheduled"));
    assert!(cluster.kubectl("get serviceaccounts,configmaps").expect_success().contains("kube-root-ca.crt"));
}

fn logs_and_exec(cluster: &TestCluster) {
    let logs = cluster.kubectl("logs deployment/nginx").expect_success();
    let all = cluster.kubectl("logs -l app=nginx --tail=-1").expect_success();
    assert!(all.contains("GET / HTTP/1.0") && all.len() >= logs.len(), "{all}");
    assert_eq!(
        cluster.kubectl("exec deployment/nginx -- cat /etc/debian_version").expect_success().split('.').next(),
        Some("12")
    );
    let echoed = cluster.kubectl_args(&["exec", "-i", "deployment/nginx", "--", "cat"], Some("through and back\n"));
    assert_eq!(echoed.expect_success(), "through and back\n", "input ends when the client's does");
    let failed = cluster.kubectl_args(&["exec", "deployment/nginx", "--", "sh", "-c", "echo oops >&2; exit 7"], None);
    assert_eq!(failed.code, 7);
    assert!(failed.stderr.contains("oops"), "{}", failed.stderr);
}

fn restart_a_killed_container(cluster: &TestCluster) {
    let pods = cluster.running("app=nginx", 3);
    let name = text(&pods[0], "/metadata/name").to_owned();
    // Killed from the host, as the kernel's OOM killer would.
    let id = text(&pods[0], "/status/containerStatuses/0/containerID");
    for pid in machine::container_processes(id) {
        // Those that the first process took with it are gone.
        run_command(Command::new("kill").args(["-9", &pid.to_string()]), None);
    }
    eventually("a restart", || {
        let pod = cluster.get(&format!("pod {name}")).remove(0);
        let status = &pod["status"]["containerStatuses"][0];
        let restarted = status["restartCount"] == 1 && status["ready"] == true;
        restarted.then_some(()).ok_or_else(|| status.to_string())
    });
    let pods = cluster.running("app=nginx", 3);
    assert!(pods.iter().any(|pod| text(pod, "/metadata/name") == name), "the pod stays the same");
}

fn replace_a_deleted_pod(cluster: &TestCluster) {
    let name = text(&cluster.running("app=nginx", 3)[0], "/metadata/name").to_owned();
    cluster.kubectl(&format!("delete pod {name}")).expect_success();
    let pods = cluster.running("app=nginx", 3);
    assert!(pods.iter().all(|pod| text(pod, "/metadata/name") != name), "another pod took its place");
}

fn scale(cluster: &TestCluster) {
    cluster.kubectl("scale deployment nginx --replicas=5").expect_success();
    let pods = cluster.running("app=nginx", 5);
    let addresses: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/status/podIP")).collect();
    assert_eq!(addresses.len(), 5);
    cluster.kubectl("scale deployment nginx --replicas=1").expect_success();
    cluster.running("app=nginx", 1);
    cluster.kubectl("scale deployment nginx --replicas=3").expect_success();
    cluster.running("app=nginx", 3);
}

/// Never fewer than three quarters (rounded up) of three pods are available, and never more than four exist.
fn roll_over(cluster: &TestCluster) {
    cluster.kubectl("set image deployment/nginx nginx=nginx:2").expect_success();
    eventually("the roll-over", || {
        let deployment = cluster.get("deployment nginx").remove(0);
        let status = &deployment["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        assert!(number("availableReplicas") >= 3, "too few: {status}");
        assert!(number("replicas") <= 4, "too many: {status}");
        let done = number("updatedReplicas") == 3 && number("replicas") == 3 && number("availableReplicas") == 3;
        done.then_some(()).ok_or_else(|| status.to_string())
    });
    assert!(
        cluster
            .kubectl("rollout status deployment/nginx --timeout=60s")
            .expect_success()
            .contains("successfully rolled out")
    );
    let images: BTreeSet<String> =
        cluster.running("app=nginx", 3).iter().map(|pod| text(pod, "/spec/containers/0/image").to_owned()).collect();
    assert_eq!(images, BTreeSet::from(["nginx:2".to_owned()]));
    let history = cluster.kubectl("rollout history deployment/nginx").expect_success();
    assert!(history.contains('1') && history.contains('2'), "{history}");
    cluster.kubectl("rollout undo deployment/nginx").expect_success();
    cluster.kubectl("rollout status deployment/nginx --timeout=60s").expect_success();
    let pods = cluster.running("app=nginx", 3);
    assert!(pods.iter().all(|pod| text(pod, "/spec/containers/0/image") == "nginx"));
    assert_eq!(cluster.get("replicasets").len(), 2, "the old set is used again");
}

fn remove(cluster: &TestCluster) {
    cluster.kubectl("delete deployment nginx").expect_success();
    eventually("nothing of the deployment is left", || {
        let left = cluster.kubectl("get deployments,replicasets,pods -o name").expect_success();
        if left.trim().is_empty() { Ok(()) } else { Err(left) }
    });
    cluster.kubectl("create namespace short").expect_success();
    cluster.kubectl("create deployment web --image=nginx -n short").expect_success();
    cluster.kubectl("wait --for=condition=Available --timeout=90s deployment/web -n short").expect_success();
    cluster.kubectl("delete namespace short --timeout=60s").expect_success();
    assert!(cluster.kubectl("get namespace short").expect_failure().contains("not found"));
}
