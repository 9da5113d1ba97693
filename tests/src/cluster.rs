//! A cluster of its own for one test, and the host it lives on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{CommandOutput, eventually, machine, run_command};

/// The network of hosts' uplinks, which lead nowhere but to each other; the first host's last byte.
const UPLINK: (&str, u8) = ("192.0.2", 2);

/// A network namespace with an uplink that leads nowhere, and a directory: a machine as far as Ferry can tell.
pub struct TestHost {
    /// The name of the namespace.
    pub netns: String,
    dir: tempfile::TempDir,
}

impl Default for TestHost {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHost {
    /// A new host.
    pub fn new() -> Self {
        Self::with_address(UPLINK.1)
    }

    /// A new host on the network of this one, the `number`th after it.
    pub fn neighbour(&self, number: u8) -> Self {
        let host = Self::with_address(UPLINK.1 + number);
        let port = format!("to{number}");
        let line = format!("link add {port} type veth peer name {port} netns {}", host.netns);
        self.command("ip", &line.split(' ').collect::<Vec<_>>()).expect_success();
        for one in [self, &host] {
            one.command("ip", &["link", "set", &port, "master", "up0", "up"]).expect_success();
        }
        host
    }

    fn with_address(last: u8) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let netns = format!("ferry-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Short, because sockets under it have paths of at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("ft").tempdir_in("/tmp").expect("a directory under /tmp");
        let host = Self { netns, dir };
        run_command(Command::new("ip").args(["netns", "add", &host.netns]), None).expect_success();
        for line in [
            "link set lo up",
            "link add up0 type bridge",
            &format!("addr add {}.{last}/24 dev up0", UPLINK.0),
            "link set up0 up",
        ] {
            host.command("ip", &line.split(' ').collect::<Vec<_>>()).expect_success();
        }
        host
    }

    /// Runs a program in the host's network.
    #[track_caller]
    pub fn command(&self, program: impl AsRef<Path>, args: &[&str]) -> CommandOutput {
        run_command(&mut self.prepared(program, args), None)
    }

    /// A command in the host's network, not started yet.
    pub fn prepared(&self, program: impl AsRef<Path>, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.netns)).arg(program.as_ref()).args(args);
        command.env("KUBECACHEDIR", self.dir.path().join("kubecache")).env("HOME", self.dir.path());
        command
    }

    /// Runs `ferry` with this host's data directory.
    #[track_caller]
    pub fn ferry(&self, args: &[&str]) -> CommandOutput {
        let data = self.data_dir();
        let mut all = args.to_vec();
        all.extend(["--data-dir", data.to_str().expect("paths under /tmp are text")]);
        self.command(machine::built_program("ferry"), &all)
    }

    /// Builds the nginx image and loads it under these names.
    #[track_caller]
    pub fn load_nginx(&self, names: &[&str]) {
        let data = self.data_dir();
        let mut args = vec!["image", "nginx", "--data-dir", data.to_str().expect("text")];
        args.extend(names.iter().flat_map(|name| ["--tag", name]));
        // The image is built with the machine's own network and home, which has the cache; only loading needs the socket.
        run_command(Command::new(machine::built_program("xtask")).args(&args), None).expect_success();
        // Ferry's own runtime takes it from the cluster's mirror; a pod may ask for one that is never pulled.
        if data.join("runtime/cri.sock").exists() {
            names.iter().for_each(|name| drop(self.ferry(&["image", "pull", name]).expect_success()));
        }
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("d")
    }

    /// Sends a signal to the ferry process; returns its directory in `/proc`.
    pub fn signal_ferry(&self, signal: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.data_dir().join("ferry.pid")).expect("a pid file");
        let pid = text.split_whitespace().next().expect("a pid");
        run_command(Command::new("kill").args([signal, pid]), None).expect_success();
        Path::new("/proc").join(pid)
    }

    /// Sends a signal to the ferry process and waits until it is gone: even a killed one takes a moment.
    pub fn end_ferry(&self, signal: &str) {
        let process = self.signal_ferry(signal);
        let gone = || if process.exists() { Err("still there".to_owned()) } else { Ok(()) };
        eventually(&format!("the end after {signal}"), gone);
    }

    /// A path for files of this host outside of the data directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file of this host that is not the cluster's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.data_dir().join("ferry.log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("--- the end of ferry.log ---");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        let down = self.ferry(&["down", "--purge"]);
        if down.code != 0 {
            eprintln!("{}: {}{}", down.line, down.stdout, down.stderr);
        }
        let gone = run_command(Command::new("ip").args(["netns", "delete", &self.netns]), None);
        if gone.code != 0 {
            eprintln!("{}: {}", gone.line, gone.stderr);
        }
    }
}

/// A running cluster with the nginx image loaded.
pub struct TestCluster {
    /// The host.
    pub host: TestHost,
    kubeconfig: PathBuf,
}

impl TestCluster {
    /// Brings one up on a host of its own.
    #[track_caller]
    pub fn up() -> Self {
        Self::up_on(TestHost::new())
    }

    /// Brings one up.
    #[track_caller]
    pub fn up_on(host: TestHost) -> Self {
        Self::up_with(host, &[])
    }

    /// Brings one up with more flags.
    #[track_caller]
    pub fn up_with(host: TestHost, flags: &[&str]) -> Self {
        let kubeconfig = host.file("kubeconfig");
        let cluster = Self { host, kubeconfig };
        cluster.start_with(flags).expect_success();
        cluster.load_nginx(&["docker.io/library/nginx:latest", "docker.io/library/nginx:2"]);
        cluster
    }

    /// `ferry up`, once more if it ran before.
    #[track_caller]
    pub fn start(&self) -> CommandOutput {
        self.start_with(&[])
    }

    #[track_caller]
    fn start_with(&self, flags: &[&str]) -> CommandOutput {
        let mut args = vec!["up", "--kubeconfig", self.kubeconfig.to_str().expect("text")];
        if !flags.iter().any(|flag| flag.starts_with("--container-runtime")) {
            args.push(machine::runtime_flag());
        }
        args.extend(flags);
        self.host.ferry(&args)
    }

    /// `ferry up` with the container runtime of the last start, else the default one.
    #[track_caller]
    pub fn start_again(&self) -> CommandOutput {
        self.host.ferry(&["up", "--kubeconfig", self.kubeconfig.to_str().expect("text")])
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A program of an administrator in the cluster's network, not started yet.
    pub fn prepared(&self, program: impl AsRef<Path>, args: &[&str]) -> Command {
        let mut command = self.host.prepared(program, args);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Builds the nginx image and loads it under these names.
    #[track_caller]
    pub fn load_nginx(&self, names: &[&str]) {
        self.host.load_nginx(names);
    }

    /// Runs `kubectl`; arguments are split at spaces.
    #[track_caller]
    pub fn kubectl(&self, line: &str) -> CommandOutput {
        self.kubectl_args(&line.split(' ').collect::<Vec<_>>(), None)
    }

    /// Runs `kubectl` with arguments as they are, and with input.
    #[track_caller]
    pub fn kubectl_args(&self, args: &[&str], input: Option<&str>) -> CommandOutput {
        run_command(&mut self.kubectl_command(args), input)
    }

    /// A `kubectl` that is not started yet.
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = self.host.prepared("kubectl", &["--kubeconfig", self.kubeconfig.to_str().expect("text")]);
        command.args(args);
        command
    }

    /// The objects that `kubectl get` lists, as JSON.
    #[track_caller]
    pub fn get(&self, line: &str) -> Vec<Value> {
        let text = self.kubectl(&format!("get {line} -o json")).expect_success();
        let list: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
        list["items"].as_array().cloned().unwrap_or_else(|| vec![list.clone()])
    }

    /// The pods of a selector once exactly `count` of them are there, all Running and Ready, and none is ending.
    #[track_caller]
    pub fn running(&self, selector: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} running pods of {selector}"), || {
            let pods = self.get(&format!("pods -l {selector}"));
            let ready = |pod: &Value| {
                let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
                pod["status"]["phase"] == "Running"
                    && pod["metadata"].get("deletionTimestamp").is_none()
                    && conditions.clone().any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            if pods.len() == count && pods.iter().all(ready) {
                return Ok(pods);
            }
            let told = self.kubectl(&format!("get pods -l {selector} -o wide"));
            Err(format!("there are {} pods:\n{}", pods.len(), told.stdout))
        })
    }

    /// The status line of `GET /` at an address of the cluster, asked from the host.
    pub fn http(&self, address: &str) -> Result<String, String> {
        let netns = format!("/run/netns/{}", self.host.netns);
        let address = format!("{address}:80");
        // Only a thread that has entered the namespace sees the cluster's network, so a helper program asks.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={netns}")).args(["bash", "-c"]).arg(format!(
            "exec 3<>/dev/tcp/{}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3",
            address.replace(':', "/")
        ));
        let output = run_command(&mut command, None);
        if output.code == 0 { Ok(output.stdout.trim().to_owned()) } else { Err(output.stderr) }
    }
}
