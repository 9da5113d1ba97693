//! Upstream's programs beside the shipped one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{TestHost, machine, run_command};

/// Builds an upstream program from its Go module; `None`, reported as skipped, without Go.
pub fn build_program(program: &str) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        skip::skip_test(format_args!("Go is not installed, so {program} cannot be built"));
        return None;
    }
    let told =
        run_command(Command::new(machine::built_program("xtask")).args(["upstream", program]), None).expect_success();
    Some(PathBuf::from(told.lines().last().expect("a path")))
}

/// The folder of a Go module, in the version that a folder of `conformance/modules` pins.
pub fn module_dir(folder: &str, name: &str) -> PathBuf {
    let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/modules").join(folder);
    let mut go = Command::new("go");
    let told = run_command(go.arg("-C").arg(pins).args(["mod", "download", "-json", name]), None).expect_success();
    let told: Value = serde_json::from_str(&told).expect("go writes JSON");
    PathBuf::from(told["Dir"].as_str().expect("a folder"))
}

/// The client URL of [`start_etcd`].
pub const ETCD: &str = "http://127.0.0.1:2379";

/// An etcd with its data in a file of the host.
pub fn start_etcd(host: &TestHost, program: &Path) -> HostDaemon {
    let data = host.file("etcd").display().to_string();
    let client = ["--data-dir", &data, "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD];
    let peer = ["--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "error"];
    HostDaemon::start(host, program, &[&client[..], &peer].concat())
}

/// A program that runs in a host's network until it is dropped. Its output goes to a file of the host, and is printed if
/// the test fails.
pub struct HostDaemon {
    child: Child,
    log: Option<PathBuf>,
}

impl Drop for HostDaemon {
    fn drop(&mut self) {
        // It may have ended by itself; kube-apiserver is slow to end otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(log) = self.log.as_ref().filter(|_| std::thread::panicking()) {
            let text = fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(40).collect();
            eprintln!("--- the end of {} ---", log.display());
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl HostDaemon {
    /// Starts a program.
    pub fn start(host: &TestHost, program: &Path, arguments: &[impl AsRef<str>]) -> Self {
        let name = program.file_name().and_then(|name| name.to_str()).expect("a name");
        let path = host.file(&format!("{name}.log"));
        let log = fs::OpenOptions::new().create(true).append(true).open(&path).expect("a log");
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let mut command = host.prepared(program, &arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let mut daemon = Self::of(&mut command);
        daemon.log = Some(path);
        daemon
    }

    /// Starts what was prepared.
    pub fn of(command: &mut Command) -> Self {
        Self { child: command.spawn().expect("it starts"), log: None }
    }
}
