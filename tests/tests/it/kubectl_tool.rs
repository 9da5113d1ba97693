//! `ferry kubectl` beside upstream's kubectl: the same output, errors and exit codes, on an API server and on real pods.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ferry_tests::{
    CommandOutput, TestApiServer, TestCluster, eventually, machine::built_program, run_command, skip_reason, upstream,
};

/// Command lines that change nothing.
const LINES: [&str; 32] = [
    "get namespaces -o name",
    "get namespace default -o jsonpath={.metadata.labels}",
    "get configmap settings -o yaml --show-managed-fields=false",
    "get configmap settings -o go-template={{range.data}}{{.}},{{end}}",
    "get configmaps -A --sort-by=.metadata.name -o custom-columns=NAME:.metadata.name,KEYS:.data",
    "get configmap absent",
    "get nonsense",
    "get pods",
    "get configmap settings --output=nonsense",
    "describe configmap settings",
    "create deployment web --image=nginx --replicas=3 --dry-run=client -o yaml",
    "create configmap two --from-literal=a=1 --dry-run=server -o json",
    "create job once --image=busybox --dry-run=client -o yaml -- echo hello",
    "run one --image=nginx --port=80 --dry-run=client -o yaml",
    "label configmap settings tier=front --dry-run=server",
    "annotate configmap settings note=text --dry-run=server -o yaml",
    "patch configmap settings -p {\"data\":{\"color\":\"green\"}} --dry-run=server",
    "api-versions",
    "auth can-i list pods",
    "delete configmap absent",
    "get --no-such-flag",
    "rollout status deployment/absent",
    "explain pods.spec.containers --recursive",
    "explain deployments --output=plaintext-openapiv2",
    "cluster-info",
    "kustomize absent",
    "completion nonsense",
    "__complete get configmaps se",
    "logs absent",
    "exec absent -- true",
    "top pods",
    "auth whoami",
];

#[test]
fn both_kubectls_say_the_same() {
    let Some(program) = upstream::build_program("kubectl") else { return };
    let server = TestApiServer::start();
    server.kubectl("create configmap settings --from-literal=color=red --from-literal=size=7").expect_success();
    for line in LINES {
        let args: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let mut ours: Command = server.prepared(built_program("ferry"), &["kubectl"]);
        let ours = run_command(ours.args(&args), None);
        let theirs = run_command(&mut server.prepared(&program, &args), None);
        assert_eq!(comparable(&ours), comparable(&theirs), "kubectl {line}");
    }
}

/// A link named `kubectl` to the binary is kubectl.
#[test]
fn link_named_kubectl_is_kubectl() {
    let server = TestApiServer::start();
    let link = server.file("kubectl");
    std::os::unix::fs::symlink(built_program("ferry"), &link).expect("a link");
    let version = run_command(&mut server.prepared(&link, &["version", "--client"]), None).expect_success();
    assert!(version.starts_with("Client Version: v1.36"), "{version}");
}

/// Command lines about the pods of [`MANIFEST`] that change nothing.
const POD_LINES: [&str; 33] = [
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
    "top node",
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
"#;

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
    eventually("metrics of the node", || match run_command(&mut pair.theirs(&["top", "node"]), None) {
        told if told.code == 0 => Ok(()),
        told => Err(told.stderr),
    });
    let mut differences: Vec<String> = POD_LINES.iter().filter_map(|line| pair.difference(line, None)).collect();
    differences.extend(pair.difference("exec -i talker -- wc -c", Some(&"a line of input\n".repeat(20_000))));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    pair.compare_copies();
    for websocket in [true, false] {
        pair.forward_port(websocket);
    }
    pair.attach();
    pair.debug();
    pair.drain();
}

/// Both programs and the cluster that they talk to.
struct KubectlPair<'a> {
    cluster: &'a TestCluster,
    upstream: PathBuf,
}

impl KubectlPair<'_> {
    fn ours(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.prepared(built_program("ferry"), &["kubectl"]);
        command
            .args(args)
            .env("KUBECACHEDIR", self.cluster.host.file("cache-ours"))
            .current_dir(self.cluster.host.dir());
        command
    }

    fn theirs(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.prepared(&self.upstream, args);
        command.env("KUBECACHEDIR", self.cluster.host.file("cache-theirs")).current_dir(self.cluster.host.dir());
        command
    }

    /// What differs between both programs for a line.
    fn difference(&self, line: &str, input: Option<&str>) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('\u{a0}', " ")).collect();
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let ours = run_command(&mut self.ours(&args), input);
        let theirs = run_command(&mut self.theirs(&args), input);
        let (mut ours, mut theirs) = (comparable(&ours), comparable(&theirs));
        if line.starts_with("logs") {
            // Lines of several containers come in any order.
            for output in [&mut ours.1, &mut theirs.1] {
                let mut lines: Vec<&str> = output.lines().collect();
                lines.sort_unstable();
                *output = lines.join("\n");
            }
        }
        (ours != theirs).then(|| format!("kubectl {line}\n  ours: {ours:?}\n  upstream's: {theirs:?}"))
    }

    /// A tree with links and a large file goes into the pod and back with both.
    fn compare_copies(&self) {
        let tree = self.cluster.host.file("tree");
        fs::create_dir_all(tree.join("deep/er")).expect("directories");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(tree.join("deep/blob"), &bytes).expect("a file");
        fs::write(tree.join("deep/er/name with spaces"), "text").expect("a file");
        std::os::unix::fs::symlink("deep/blob", tree.join("link")).expect("a link");
        for (number, ours) in [(1, true), (2, false)] {
            let (inside, back) = (format!("talker:/tmp/copy-{number}"), format!("back-{number}"));
            for args in [["cp", "tree", &inside], ["cp", &inside, &back]] {
                let mut command = if ours { self.ours(&args) } else { self.theirs(&args) };
                run_command(&mut command, None).expect_success();
            }
            assert!(fs::read(self.cluster.host.file(&back).join("deep/blob")).expect("a copy") == bytes);
        }
        assert_eq!(tree_of(&self.cluster.host.file("back-1")), tree_of(&self.cluster.host.file("back-2")));
        let listing = |number| {
            let script = format!("cd /tmp/copy-{number} && find . | sort && readlink link");
            self.cluster.kubectl_args(&["exec", "talker", "--", "sh", "-c", &script], None).expect_success()
        };
        assert_eq!(listing(1), listing(2));
    }

    fn forward_port(&self, websocket: bool) {
        let mut command = self.ours(&["port-forward", "deployment/web", ":80"]);
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

    /// What is written to an attached container comes back.
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

    fn drain(&self) {
        let node = self.cluster.get("nodes")[0]["metadata"]["name"].as_str().expect("a name").to_owned();
        let difference = self.difference(&format!("drain {node} --ignore-daemonsets --dry-run=server"), None);
        assert_eq!(difference, None);
        let args = ["drain", &node, "--ignore-daemonsets", "--force", "--grace-period=0", "--pod-selector=app=talker"];
        let told = run_command(&mut self.ours(&args), None).expect_success();
        assert!(told.contains("pod/talker evicted") && told.ends_with(&format!("node/{node} drained\n")), "{told}");
        eventually("the pod is gone", || match self.cluster.kubectl("get pod talker").code {
            0 => Err("it is there".to_owned()),
            _ => Ok(()),
        });
        run_command(&mut self.ours(&["uncordon", &node]), None).expect_success();
    }
}

/// Paths, link targets and sizes below a directory.
fn tree_of(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).expect("a directory").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            let data = fs::symlink_metadata(&path).expect("it is there");
            let name = path.strip_prefix(directory).expect("below").display().to_string();
            found.push(format!("{name} {}", if data.is_dir() { 0 } else { data.len() }));
            if data.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the parts that must be equal: exit code, and output without what changes between two runs.
fn comparable(output: &CommandOutput) -> (i32, String, String) {
    let normalized = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("resourceVersion") && !line.contains("uid"));
        let lines = lines.map(|line| line.split_whitespace().map(without_age).collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>().join("\n")
    };
    (output.code, normalized(&output.stdout), normalized(&output.stderr))
}

/// Replaces ages, which differ by a second, and IDs of executions.
fn without_age(word: &str) -> &str {
    let is_age = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c));
    let is_id = word.trim_matches(['"', ':']).len() == 64
        && word.trim_matches(['"', ':']).chars().all(|c| c.is_ascii_hexdigit());
    if is_age || is_id { "<age or ID>" } else { word }
}
