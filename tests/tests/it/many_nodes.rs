//! Several nodes: hosts join, pods reach pods, services and node ports across hosts on every network back end, and a node
//! that leaves takes its routes with it.

use ferry_tests::{TestCluster, TestHost, eventually, machine, skip_reason};
use serde_json::{Value, json};

const BACKENDS: [&str; 3] = ["vxlan", "host-gw", "udp"];

#[test]
fn pods_of_three_nodes_reach_each_other() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up_with(TestHost::new(), &["--node-name", "node-1"]);
    let (second, third) = (cluster.host.neighbour(1), cluster.host.neighbour(2));
    join(&cluster, &second, "node-2");
    join(&cluster, &third, "node-3");
    start_web_pods(&cluster);
    let pods = cluster.running("app=web", 3);
    for backend in BACKENDS {
        set_backend(&cluster, backend);
        eventually(&format!("{backend}: every pod reaches every pod"), || pods_reach_pods(&cluster, &pods));
        eventually(&format!("{backend}: services lead to all nodes"), || services_answer(&cluster, &pods));
        eventually(&format!("{backend}: large answers arrive"), || large_answers_arrive(&cluster, &pods));
        eventually(&format!("{backend}: datagrams arrive"), || datagrams_arrive(&cluster, &pods));
        assert_no_cluster_address_leaves(&cluster, backend);
    }
    let log = cluster.kubectl(&format!("logs {}", name_of(&pods, "node-2"))).expect_success();
    assert!(log.contains("GET /"), "logs of a pod on a joined node: {log}");
    survives_restart(&cluster, &second, &pods);
    leaves_no_route(&cluster, &third);
}

/// Runs what `ferry token create` prints on a host.
fn join(cluster: &TestCluster, host: &TestHost, name: &str) {
    let line = cluster.host.ferry(&["token", "create"]).expect_success();
    let mut args: Vec<&str> = line.split_whitespace().skip(1).collect();
    args.extend([machine::runtime_flag(), "--node-name", name]);
    host.ferry(&args).expect_success();
    host.load_nginx(&["docker.io/library/nginx:latest"]);
}

fn start_web_pods(cluster: &TestCluster) {
    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "nginx", "image": "nginx", "imagePullPolicy": "IfNotPresent" }],
        },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "web" },
        "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "NodePort", "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
    });
    for object in [set, service] {
        cluster.kubectl_args(&["apply", "-f", "-"], Some(&object.to_string())).expect_success();
    }
}

fn set_backend(cluster: &TestCluster, backend: &str) {
    let patch = json!({ "data": { "backend": backend } }).to_string();
    let args = ["patch", "configmap", "ferry-network", "-n", "kube-system", "--type=merge", "-p", &patch];
    cluster.kubectl_args(&args, None).expect_success();
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name_of<'a>(pods: &'a [Value], node: &str) -> &'a str {
    let pod = pods.iter().find(|pod| text(pod, "/spec/nodeName") == node).expect("a pod on every node");
    text(pod, "/metadata/name")
}

/// Runs a script in a pod; its output must contain `wanted`.
fn run_in_pod(cluster: &TestCluster, pod: &Value, script: &str, wanted: &str) -> Result<(), String> {
    let args = ["exec", text(pod, "/metadata/name"), "--", "timeout", "5", "bash", "-c", script];
    let output = cluster.kubectl_args(&args, None);
    if output.stdout.contains(wanted) { Ok(()) } else { Err(format!("{script}: {}{}", output.stdout, output.stderr)) }
}

fn get_status(host: &str, port: i64) -> String {
    format!("exec 3<>/dev/tcp/{host}/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3")
}

fn pods_reach_pods(cluster: &TestCluster, pods: &[Value]) -> Result<(), String> {
    for from in pods {
        for to in pods {
            run_in_pod(cluster, from, &get_status(text(to, "/status/podIP"), 80), "200 OK")?;
        }
    }
    Ok(())
}

fn services_answer(cluster: &TestCluster, pods: &[Value]) -> Result<(), String> {
    let service = cluster.get("service web").remove(0);
    let node_port = service["spec"]["ports"][0]["nodePort"].as_i64().unwrap_or_default();
    for from in pods {
        // Several times, so that endpoints on all nodes are chosen.
        for _ in 0..4 {
            run_in_pod(cluster, from, &get_status(text(&service, "/spec/clusterIP"), 80), "200 OK")?;
        }
        run_in_pod(cluster, from, &get_status("web", 80), "200 OK")?;
        for to in pods {
            run_in_pod(cluster, from, &get_status(text(to, "/status/hostIP"), node_port), "200 OK")?;
        }
    }
    Ok(())
}

/// A megabyte crosses hosts: packets are as large as the path allows.
fn large_answers_arrive(cluster: &TestCluster, pods: &[Value]) -> Result<(), String> {
    for pod in pods {
        run_in_pod(cluster, pod, "head -c 1000000 /dev/zero > /var/www/html/big; echo written", "written")?;
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let address = text(&pods[to], "/status/podIP");
        let script = format!(
            "exec 3<>/dev/tcp/{address}/80 && printf 'GET /big HTTP/1.0\\r\\n\\r\\n' >&3 && tail -c 1000000 <&3 | wc -c"
        );
        run_in_pod(cluster, &pods[from], &script, "1000000")?;
    }
    Ok(())
}

/// A datagram of one pod is answered by a pod of another node.
fn datagrams_arrive(cluster: &TestCluster, pods: &[Value]) -> Result<(), String> {
    let server = "use IO::Socket::INET; $s = IO::Socket::INET->new(LocalPort => 9999, Proto => 'udp', ReuseAddr => 1); \
        while ($s->recv($m, 100)) { $s->send(\"echo $m\") }";
    let start = format!("pkill perl; (setsid perl -e '{server}' >/dev/null 2>&1 &); sleep 0.2; echo started");
    run_in_pod(cluster, &pods[0], &start, "started")?;
    let address = text(&pods[0], "/status/podIP");
    let ask = format!(
        "perl -e 'use IO::Socket::INET; $s = IO::Socket::INET->new(PeerAddr => \"{address}:9999\", Proto => \"udp\"); \
         $s->send(\"hello\"); $s->recv($m, 100); print $m'"
    );
    run_in_pod(cluster, &pods[1], &ask, "echo hello")
}

/// With a tunnel no packet with a pod's address is on the hosts' network: the guard dropped none of its own either.
fn assert_no_cluster_address_leaves(cluster: &TestCluster, backend: &str) {
    let routes = cluster.host.command("ip", &["route"]).expect_success();
    let remote: Vec<&str> = routes.lines().filter(|line| line.contains("proto 202")).collect();
    assert_eq!(remote.len(), 2, "{backend}: {routes}");
    let is_direct = remote.iter().all(|line| line.contains("dev up0"));
    assert_eq!(is_direct, backend == "host-gw", "{backend}: {routes}");
}

/// The node process of a joined node is started again without arguments and finds its pods running.
fn survives_restart(cluster: &TestCluster, host: &TestHost, pods: &[Value]) {
    let name = name_of(pods, "node-2").to_owned();
    host.end_ferry("-9");
    host.ferry(&["up", "--node-name", "node-2"]).expect_success();
    let pod = cluster.get(&format!("pod {name}")).remove(0);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    eventually("pods are reached after the restart", || pods_reach_pods(cluster, pods));
}

fn leaves_no_route(cluster: &TestCluster, host: &TestHost) {
    host.ferry(&["down", "--purge"]).expect_success();
    cluster.host.ferry(&["node", "remove", "node-3", "--force"]).expect_success();
    eventually("the route of the removed node is gone", || {
        let routes = cluster.host.command("ip", &["route"]).expect_success();
        match routes.lines().filter(|line| line.contains("proto 202")).count() {
            1 => Ok(()),
            _ => Err(routes),
        }
    });
    let left = host.command("ip", &["route"]).expect_success();
    assert!(left.lines().all(|line| line.contains("192.0.2.0/24")), "{left}");
}
