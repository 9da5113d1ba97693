//! Services and DNS: pods and the host reach services by address, node port and name.

use ferry_tests::{TestCluster, eventually, skip_reason};
use serde_json::Value;

#[test]
fn services_are_reached_by_address_and_name() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    cluster.kubectl("create deployment nginx --image=nginx --replicas=2").expect_success();
    cluster.kubectl("expose deployment nginx --port=8080 --target-port=80 --type=NodePort").expect_success();
    cluster.kubectl("wait --for=condition=Available --timeout=90s deployment/nginx").expect_success();
    let pods = cluster.running("app=nginx", 2);
    reach_by_address(&cluster, &pods);
    reach_by_name(&cluster, &pods);
    refuse_without_endpoints(&cluster);
    repair_deleted_table(&cluster, &pods);
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The status line of `GET /`, asked from inside a pod, or the reason why there is none.
fn ask_from_pod(cluster: &TestCluster, pod: &Value, host: &str, port: i64) -> Result<String, String> {
    let script =
        format!("exec 3<>/dev/tcp/{host}/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 5 head -1 <&3");
    let name = text(pod, "/metadata/name");
    let output = cluster.kubectl_args(&["exec", name, "--", "timeout", "10", "bash", "-c", &script], None);
    if output.stdout.contains("200 OK") { Ok(output.stdout) } else { Err(output.stdout + &output.stderr) }
}

fn ask_from_host(cluster: &TestCluster, host: &str, port: i64) -> Result<String, String> {
    let script =
        format!("exec 3<>/dev/tcp/{host}/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 5 head -1 <&3");
    let output = cluster.host.command("timeout", &["10", "bash", "-c", &script]);
    if output.stdout.contains("200 OK") { Ok(output.stdout) } else { Err(output.stderr) }
}

fn reach_by_address(cluster: &TestCluster, pods: &[Value]) {
    let service = cluster.get("service nginx").remove(0);
    let (address, port) = (text(&service, "/spec/clusterIP").to_owned(), 8080);
    eventually("the service answers the host", || ask_from_host(cluster, &address, port));
    // Repeated, so that every endpoint is chosen, the pod itself too.
    for _ in 0..8 {
        ask_from_pod(cluster, &pods[0], &address, port).unwrap();
    }
    let node_port = service["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let node = text(&pods[0], "/status/hostIP").to_owned();
    ask_from_host(cluster, &node, node_port).unwrap();
    ask_from_pod(cluster, &pods[1], &node, node_port).unwrap();
}

fn reach_by_name(cluster: &TestCluster, pods: &[Value]) {
    for name in ["nginx", "nginx.default", "nginx.default.svc.cluster.local"] {
        eventually("the service answers by name", || ask_from_pod(cluster, &pods[0], name, 8080));
    }
    let pod = text(&pods[0], "/metadata/name");
    let settings = cluster.kubectl_args(&["exec", pod, "--", "cat", "/etc/resolv.conf"], None).expect_success();
    assert!(settings.contains("nameserver 10.96.0.10"), "{settings}");
    assert!(settings.contains("search default.svc.cluster.local svc.cluster.local cluster.local"), "{settings}");
    let kubernetes = ["exec", pod, "--", "getent", "hosts", "kubernetes.default.svc"];
    let found = cluster.kubectl_args(&kubernetes, None).expect_success();
    assert!(found.starts_with("10.96.0.1 "), "{found}");
    let absent =
        cluster.kubectl_args(&["exec", pod, "--", "getent", "hosts", "absent.default.svc.cluster.local"], None);
    assert_ne!(absent.code, 0, "{}", absent.stdout);
}

fn refuse_without_endpoints(cluster: &TestCluster) {
    cluster.kubectl("create service clusterip empty --tcp=80").expect_success();
    let address = text(&cluster.get("service empty").remove(0), "/spec/clusterIP").to_owned();
    eventually("the service without endpoints refuses", || match ask_from_host(cluster, &address, 80) {
        Err(error) if error.contains("refused") => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn repair_deleted_table(cluster: &TestCluster, pods: &[Value]) {
    cluster.host.command("nft", &["flush", "ruleset"]).expect_success();
    let address = text(&cluster.get("service nginx").remove(0), "/spec/clusterIP").to_owned();
    eventually("the service answers after a flush", || ask_from_pod(cluster, &pods[0], &address, 8080));
}

#[test]
fn policies_isolate_pods() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    for name in ["server", "friend", "stranger"] {
        cluster.kubectl(&format!("run {name} --image=nginx --labels=app={name}")).expect_success();
    }
    let pod = |name: &str| cluster.running(&format!("app={name}"), 1).remove(0);
    let (server, friend, stranger) = (pod("server"), pod("friend"), pod("stranger"));
    let address = text(&server, "/status/podIP").to_owned();
    ask_from_pod(&cluster, &stranger, &address, 80).unwrap();
    let policy = serde_json::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "friends" },
        "spec": {
            "podSelector": { "matchLabels": { "app": "server" } },
            "ingress": [{
                "from": [{ "podSelector": { "matchLabels": { "app": "friend" } } }],
                "ports": [{ "port": 80, "protocol": "TCP" }],
            }],
        },
    });
    cluster.kubectl_args(&["apply", "-f", "-"], Some(&policy.to_string())).expect_success();
    eventually("the stranger is kept out", || match ask_from_pod(&cluster, &stranger, &address, 80) {
        Err(_) => Ok(()),
        Ok(answer) => Err(answer),
    });
    ask_from_pod(&cluster, &friend, &address, 80).unwrap();
    ask_from_host(&cluster, &address, 80).unwrap();
    cluster.kubectl("label pod stranger app=friend --overwrite").expect_success();
    eventually("the stranger is a friend by its label", || ask_from_pod(&cluster, &stranger, &address, 80));
    cluster.kubectl("delete networkpolicy friends").expect_success();
    eventually("all may come again", || ask_from_pod(&cluster, &server, &address, 80));
}
