//! The API server alone, as `ferry kube-apiserver` on a port of loopback, with certificates of its own.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{CommandOutput, TestCa, eventually, machine, run_command};

/// A running API server; dropping it ends it.
pub struct TestApiServer {
    child: Child,
    dir: tempfile::TempDir,
    authority: TestCa,
    port: u16,
    flags: Vec<String>,
}

impl Default for TestApiServer {
    fn default() -> Self {
        Self::start()
    }
}

impl TestApiServer {
    /// Starts one that serves what upstream serves by default.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with more flags.
    #[track_caller]
    pub fn start_with(flags: &[String]) -> Self {
        let dir = tempfile::Builder::new().prefix("ft").tempdir_in("/tmp").expect("a directory under /tmp");
        let authority = certificates(dir.path());
        let port = free_port();
        fs::write(dir.path().join("kubeconfig"), kubeconfig(dir.path(), port)).expect("written");
        fs::write(dir.path().join("stranger.kubeconfig"), stranger(dir.path(), port)).expect("written");
        let child = spawn_server(dir.path(), port, flags);
        let mut server = Self { child, dir, authority, port, flags: flags.to_vec() };
        server.wait_until_it_listens();
        server
    }

    /// Kills the server and starts it again with its data, after `pause`.
    #[track_caller]
    pub fn restart(&mut self, pause: std::time::Duration) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
        std::thread::sleep(pause);
        self.child = spawn_server(self.dir.path(), self.port, &self.flags);
        self.wait_until_it_listens();
    }

    #[track_caller]
    fn wait_until_it_listens(&mut self) {
        eventually("the API server listens", || {
            assert!(matches!(self.child.try_wait(), Ok(None)), "it ended:\n{}", self.log());
            TcpStream::connect(("127.0.0.1", self.port)).map(|_| ()).map_err(|error| error.to_string())
        });
    }

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// Makes another administrator; returns the kubeconfig.
    pub fn add_administrator(&self, name: &str) -> PathBuf {
        self.authority.issue(name, "system:masters", &["localhost"]);
        let text = fs::read_to_string(self.kubeconfig()).expect("a kubeconfig");
        let text = text.replace("/admin.crt", &format!("/{name}.crt")).replace("/admin.key", &format!("/{name}.key"));
        let file = self.file(&format!("{name}.kubeconfig"));
        fs::write(&file, text).expect("written");
        file
    }

    /// A file of this test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command of an administrator, not started yet.
    pub fn prepared(&self, program: impl AsRef<Path>, args: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command.args(args).current_dir(self.dir.path());
        command.env("KUBECONFIG", self.kubeconfig()).env("KUBECACHEDIR", self.file("kubecache"));
        command
    }

    /// Runs `kubectl`; arguments are split at spaces.
    #[track_caller]
    pub fn kubectl(&self, line: &str) -> CommandOutput {
        self.kubectl_args(&line.split(' ').collect::<Vec<_>>(), None)
    }

    /// Runs `kubectl` with arguments as they are, and with input.
    #[track_caller]
    pub fn kubectl_args(&self, args: &[&str], input: Option<&str>) -> CommandOutput {
        run_command(&mut self.prepared("kubectl", args), input)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}

impl Drop for TestApiServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the API server's log ---\n{}", self.log());
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_server(dir: &Path, port: u16, flags: &[String]) -> Child {
    let log = File::options().append(true).create(true).open(dir.join("log")).expect("a log");
    let mut command = Command::new(machine::built_program("ferry"));
    command.arg("kube-apiserver").args(arguments(dir, port)).args(flags);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
    command.spawn().expect("ferry starts")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    listener.local_addr().expect("it is bound").port()
}

fn arguments(dir: &Path, port: u16) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    vec![
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        file("data-dir", "data"),
        file("tls-cert-file", "server.crt"),
        file("tls-private-key-file", "server.key"),
        file("client-ca-file", "ca.crt"),
    ]
}

fn kubeconfig(dir: &Path, port: u16) -> String {
    let file = |name: &str| dir.join(name).display().to_string();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster:\n    server: https://127.0.0.1:{port}\n    certificate-authority: {}\n\
         contexts:\n- name: test\n  context:\n    cluster: test\n    user: admin\n\
         users:\n- name: admin\n  user:\n    client-certificate: {}\n    client-key: {}\n",
        file("ca.crt"),
        file("admin.crt"),
        file("admin.key")
    )
}

/// A kubeconfig without credentials; the command line adds them.
fn stranger(dir: &Path, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster:\n    server: https://127.0.0.1:{port}\n    certificate-authority: {}\n\
         contexts:\n- name: test\n  context:\n    cluster: test\n",
        dir.join("ca.crt").display()
    )
}

/// An authority, the server's certificate and an administrator's.
fn certificates(dir: &Path) -> TestCa {
    let authority = TestCa::new(dir, "ca");
    for (name, group) in [("server", "servers"), ("admin", "system:masters")] {
        authority.issue(name, group, &["localhost"]);
    }
    authority
}
