//! Upstream's programs beside the shipped one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{Host, machine, run};

/// Upstream's program, built from its Go module; `None`, said aloud, where Go is absent.
pub fn built(program: &str) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: Go is not installed, so {program} cannot be built");
        return None;
    }
    let told = run(Command::new(machine::built("xtask")).args(["upstream", program]), None).ok();
    Some(PathBuf::from(told.lines().last().expect("a path")))
}

/// Where [`etcd`] answers.
pub const ETCD: &str = "http://127.0.0.1:2379";

/// An etcd with its data in a file of the host.
pub fn etcd(host: &Host, program: &Path) -> Daemon {
    let data = host.file("etcd").display().to_string();
    let client = ["--data-dir", &data, "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD];
    let peer = ["--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "error"];
    Daemon::start(host, program, &[&client[..], &peer].concat())
}

/// A program that runs in a host's network until it is dropped. What it says is in a file of the host.
pub struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; kube-apiserver is slow to end otherwise.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// Starts a program.
    pub fn start(host: &Host, program: &Path, arguments: &[impl AsRef<str>]) -> Self {
        let name = program.file_name().and_then(|name| name.to_str()).expect("a name");
        let log = fs::OpenOptions::new().create(true).append(true).open(host.file(&format!("{name}.log")));
        let log = log.expect("a log");
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let mut command = host.prepared(program, &arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        Self::of(&mut command)
    }

    /// Starts what was prepared.
    pub fn of(command: &mut Command) -> Self {
        Self(command.spawn().expect("it starts"))
    }
}
