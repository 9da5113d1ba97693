//! Both kubectls on a cluster with real pods.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use ferry_tests::{TestCluster, eventually, run_command, skip_reason, upstream};

use super::KubectlPair;

/// Command lines about the pods of [`MANIFEST`] that change nothing.
const POD_LINES: [&str; 38] = [
    "logs talker",
    "logs talker -c second",
    "logs talker --all-containers --prefix",
    "logs talker --tail=1",
    "logs talker --limit-bytes=9",
    "logs talker --timestamps --since-time=2099-01-01T00:00:00Z",
    "logs talker --since=1h --tail=2",
    "logs talker -c none",
    "logs talker --previous",
    "logs -l app=talker --all-containers --prefix --max-log-requests=1",
    "logs -l app=talker --tail=1 --ignore-errors",
    "logs absent",
    "exec talker -- cat /etc/debian_version",
    "exec talker -c second -- printenv ROLE",
    "exec talker -- sh -c exit\u{a0}7",
    "exec talker -- /no/such/program",
    "exec talker -c none -- true",
    "exec deployment/web -- nginx -v",
    "exec absent -- true",
    "attach absent",
    "port-forward talker nonsense",
    "port-forward service/absent 80",
    "describe pod talker",
    "describe deployment web",
    "rollout status deployment/web",
    "rollout history deployment/web",
    "wait --for=condition=Ready pod/talker --timeout=5s",
    "wait --for=jsonpath={.status.phase}=Failed pod/talker --timeout=1s",
    "wait --for=create pod/absent --timeout=1s",
    "get pods -o wide",
    "get events --field-selector=involvedObject.name=talker,reason=Started",
    "events --for pod/talker",
    "events --for=deployment/web --types=Normal --no-headers",
    "events --types=Warning",
    "events --types=nonsense",
    "events -A",
    "events --for absent",
    "debug absent --image=nginx",
];

const MANIFEST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: talker, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: first, image: nginx, imagePullPolicy: Never, command: [sh, -c, "echo one; echo two; echo three >&2; exec cat"], stdin: true}
  - {name: second, image: nginx, imagePullPolicy: Never, command: [sh, -c, "echo second; exec sleep 9999"], env: [{name: ROLE, value: helper}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: nginx, image: nginx, imagePullPolicy: Never}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;

/// Command lines about metrics.
const METRICS_LINES: [&str; 10] = [
    "top node",
    "top node --no-headers --sort-by=cpu",
    "top node --sort-by=nonsense",
    "top pods",
    "top pods --containers -l app=talker",
    "top pods --sum --sort-by=memory",
    "top pods --no-headers -l app=web",
    "top pod talker --containers",
    "top pods -A --sum",
    "top pod absent",
];

#[test]
fn both_kubectls_do_the_same_with_pods() {
    if skip_reason().is_some() {
        return;
    }
    let Some(program) = upstream::build_program("kubectl") else { return };
    let cluster = TestCluster::up();
    cluster.kubectl_args(&["apply", "-f", "-"], Some(MANIFEST)).expect_success();
    cluster.running("app=talker", 1);
    cluster.running("app=web", 1);
    let pair = KubectlPair { cluster: &cluster, upstream: program };
    let mut differences: Vec<String> = POD_LINES.iter().filter_map(|line| pair.difference(line, None)).collect();
    differences.extend(pair.difference("exec -i talker -- wc -c", Some(&"a line of input\n".repeat(20_000))));
    differences.extend(pair.compare_metrics());
    differences.extend(pair.compare_streams());
    differences.extend(pair.compare_rollouts());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    pair.compare_copies();
    let name = cluster.get("pods -l app=web")[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    let web_pod = format!("pod/{name}");
    for websocket in [true, false] {
        for target in ["deployment/web", "service/web", web_pod.as_str()] {
            pair.forward_port(target, websocket);
        }
    }
    pair.attach();
    pair.debug();
    pair.compare_terminals();
    pair.compare_drains();
}

impl KubectlPair<'_> {
    fn compare_metrics(&self) -> Vec<String> {
        eventually("metrics of the node and the pods", || {
            let told =
                [&["top", "node"][..], &["top", "pod", "talker"]].map(|args| run_command(&mut self.theirs(args), None));
            match told.into_iter().find(|told| told.code != 0) {
                None => Ok(()),
                Some(told) => Err(told.stderr),
            }
        });
        METRICS_LINES.iter().filter_map(|line| self.difference(line, None)).collect()
    }

    fn forward_port(&self, target: &str, websocket: bool) {
        let mut command = self.ours(&["port-forward", target, ":80"]);
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websocket.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let mut line = String::new();
        // A closed pipe would end it.
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("a line");
        let port = line.trim_start_matches("Forwarding from 127.0.0.1:").split(' ').next().expect("a port").to_owned();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3");
        for _ in 0..3 {
            let status = self.cluster.host.command("bash", &["-c", &script]).expect_success();
            assert_eq!(status.trim(), "HTTP/1.1 200 OK", "{line}");
        }
        child.kill().expect("it runs until it is ended");
        child.wait().expect("it ends");
    }

    /// Input of an attached container is echoed.
    fn attach(&self) {
        let mut command = self.ours(&["attach", "-i", "-q", "talker", "-c", "first"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut stdin, b"echoed\n").expect("it reads");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.by_ref().map_while(Result::ok).any(|line| line == "echoed"));
        child.kill().expect("it runs until it is ended");
        child.wait().expect("it ends");
    }

    /// An ephemeral container, a copy of the pod and a pod on the node.
    fn debug(&self) {
        let node = self.cluster.get("nodes")[0]["metadata"]["name"].as_str().expect("a name").to_owned();
        let node = format!("node/{node}");
        for (number, ours) in [(1, true), (2, false)] {
            let run = |args: &[&str]| {
                let mut command = if ours { self.ours(args) } else { self.theirs(args) };
                run_command(&mut command, None).expect_success()
            };
            let (container, copy) = (format!("debug-{number}"), format!("copy-{number}"));
            run(&[
                "debug",
                "talker",
                "--image=nginx",
                "--image-pull-policy=Never",
                "-c",
                &container,
                "--",
                "sleep",
                "99",
            ]);
            run(&[
                "debug",
                "talker",
                "--copy-to",
                &copy,
                "--container=first",
                "--image-pull-policy=Never",
                "--",
                "sleep",
                "99",
            ]);
            run(&["debug", &node, "--image=nginx", "--image-pull-policy=Never", "--", "sleep", "99"]);
        }
        let pod = &self.cluster.get("pod talker")[0];
        let containers = pod["spec"]["ephemeralContainers"].as_array().expect("ephemeral containers");
        let mut specs: Vec<_> = containers.clone();
        specs.iter_mut().for_each(|spec| spec["name"] = "debug".into());
        assert_eq!(specs[0], specs[1]);
        let spec_of = |name: &str| {
            let mut pod = self.cluster.get(&format!("pod {name}")).remove(0);
            let spec = pod["spec"].as_object_mut().expect("a spec");
            spec.retain(|field, _| field != "volumes");
            spec["containers"].as_array_mut().expect("a list").iter_mut().for_each(|container| {
                container["volumeMounts"] = serde_json::Value::Null;
            });
            pod["spec"].clone()
        };
        assert_eq!(spec_of("copy-1"), spec_of("copy-2"));
    }
}
