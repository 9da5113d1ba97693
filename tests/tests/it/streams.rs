//! Streams into real containers with the unmodified kubectl, over WebSocket and, as older clients do, over SPDY.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use ferry_tests::{CommandOutput, TestCluster, run_command, skip_reason};
use serde_json::Value;

#[test]
fn streams_reach_containers() {
    if skip_reason().is_some() {
        return;
    }
    let cluster = TestCluster::up();
    cluster.kubectl("create deployment nginx --image=nginx").expect_success();
    let pod = cluster.running("app=nginx", 1).remove(0);
    for websocket in [true, false] {
        let client = StreamClient { cluster: &cluster, pod: &pod, websocket };
        client.exec();
        client.terminal();
        client.copy();
        client.port_forward();
        client.attach();
    }
    follow_logs(&cluster, &pod);
    proxies(&cluster, &pod);
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A kubectl that speaks one of both protocols, and the pod that it speaks to.
struct StreamClient<'a> {
    cluster: &'a TestCluster,
    pod: &'a Value,
    websocket: bool,
}

impl StreamClient<'_> {
    fn name(&self) -> &str {
        text(self.pod, "/metadata/name")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.kubectl_command(args);
        let flag = self.websocket.to_string();
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &flag).env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &flag);
        command
    }

    #[track_caller]
    fn kubectl(&self, args: &[&str], input: Option<&str>) -> CommandOutput {
        run_command(&mut self.command(args), input)
    }

    fn exec(&self) {
        let name = self.name();
        assert!(
            self.kubectl(&["exec", name, "--", "cat", "/etc/debian_version"], None).expect_success().starts_with("12.")
        );
        let long = "a line of the input\n".repeat(20_000);
        let counted = self.kubectl(&["exec", "-i", name, "--", "wc", "-c"], Some(&long)).expect_success();
        assert_eq!(counted.trim(), long.len().to_string(), "all input arrives, and its end");
        let failed = self.kubectl(&["exec", name, "--", "sh", "-c", "echo out; echo err >&2; exit 7"], None);
        assert_eq!((failed.code, failed.stdout.as_str()), (7, "out\n"));
        assert!(failed.stderr.starts_with("err\n"), "{}", failed.stderr);
        let none = self.kubectl(&["exec", name, "--", "/no/such/program"], None).expect_failure();
        assert!(none.contains("no such file or directory"), "{none}");
        let wrong = self.kubectl(&["exec", name, "-c", "other", "--", "true"], None).expect_failure();
        assert!(wrong.contains("container other is not valid for pod"), "{wrong}");
    }

    /// A terminal has the size of the client's.
    fn terminal(&self) {
        // The size comes when the command runs already.
        let script = "'test -t 0 && while [ \"$(stty size)\" = \"0 0\" ]; do sleep 0.05; done; stty size; exit 3'";
        let kubectl = self.command(&["exec", "-it", self.name(), "--", "sh", "-c", script]);
        let line: Vec<String> = std::iter::once(kubectl.get_program())
            .chain(kubectl.get_args())
            .map(|word| word.to_str().expect("text").to_owned())
            .collect();
        let inside = format!("stty rows 31 cols 101; {}", line.join(" "));
        let mut command = Command::new("script");
        command.args(["-qec", &inside, "/dev/null"]);
        command.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = run_command(&mut command, None);
        assert_eq!(output.code, 3, "{}", output.stdout);
        assert!(output.stdout.contains("31 101"), "{}", output.stdout);
    }

    fn copy(&self) {
        let (from, back) = (self.cluster.host.file("blob"), self.cluster.host.file("back"));
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(&from, &bytes).expect("a file");
        let inside = format!("{}:/tmp/blob", self.name());
        let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
        self.kubectl(&["cp", &path(&from), &inside], None).expect_success();
        self.kubectl(&["cp", &inside, &path(&back)], None).expect_success();
        assert!(fs::read(&back).expect("a copy") == bytes, "what comes back is what was sent");
    }

    fn port_forward(&self) {
        let mut forward = StreamTalker::start(self.command(&["port-forward", self.name(), ":80"]));
        let line = forward.line(|line| line.starts_with("Forwarding from 127.0.0.1:"));
        let port = line.trim_start_matches("Forwarding from 127.0.0.1:").split(' ').next().expect("a port");
        for _ in 0..3 {
            assert_eq!(get(self.cluster, "127.0.0.1", port, "/"), "HTTP/1.1 200 OK");
        }
    }

    fn attach(&self) {
        let mut attached = StreamTalker::start(self.command(&["attach", self.name()]));
        let path = format!("/attached-{}", self.websocket);
        // Whether it is attached already only shows in what it gets, so the question is repeated.
        let address = text(self.pod, "/status/podIP").to_owned();
        attached.until(|| drop(get(self.cluster, &address, "80", &path)), |line| line.contains(&path));
    }
}

/// The status line of a request, made in the cluster's network.
fn get(cluster: &TestCluster, address: &str, port: &str, path: &str) -> String {
    let script =
        format!("exec 3<>/dev/tcp/{address}/{port}; printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3");
    cluster.host.command("bash", &["-c", &script]).expect_success().trim().to_owned()
}

fn follow_logs(cluster: &TestCluster, pod: &Value) {
    let mut log =
        StreamTalker::start(cluster.kubectl_command(&["logs", "-f", "--tail=1", text(pod, "/metadata/name")]));
    log.line(|_| true);
    let status = get(cluster, text(pod, "/status/podIP"), "80", "/followed");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    log.line(|line| line.contains("GET /followed HTTP/1.0"));
}

fn proxies(cluster: &TestCluster, pod: &Value) {
    let raw = |path: &str| cluster.kubectl_args(&["get", "--raw", path], None);
    let name = text(pod, "/metadata/name");
    let base = format!("/api/v1/namespaces/default/pods/{name}:80/proxy");
    assert!(raw(&format!("{base}/")).expect_success().contains("Welcome to nginx!"));
    assert!(raw(&format!("{base}/missing")).expect_failure().contains("NotFound"));
    let node = text(pod, "/spec/nodeName");
    assert_eq!(raw(&format!("/api/v1/nodes/{node}/proxy/healthz")).expect_success(), "ok");
    let refused = raw(&format!("/api/v1/namespaces/default/pods/{name}:81/proxy/")).expect_failure();
    assert!(refused.contains("connection refused"), "{refused}");
    let token = cluster.kubectl("create token default --duration=10m").expect_success();
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
}

/// A program that goes on until it is dropped, line by line.
struct StreamTalker {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl StreamTalker {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("kubectl starts");
        let (sender, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// The next line that is wanted.
    #[track_caller]
    fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.lines.recv_timeout(ferry_tests::EVENTUAL_TIMEOUT).expect("a line of output");
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Asks again and again until a line is wanted.
    #[track_caller]
    fn until(&mut self, ask: impl Fn(), wanted: impl Fn(&str) -> bool) {
        ferry_tests::eventually("a line of output", || {
            ask();
            let found = self.lines.try_iter().any(|line| wanted(&line));
            found.then_some(()).ok_or_else(|| "it is not there".to_owned())
        });
    }
}

impl Drop for StreamTalker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
