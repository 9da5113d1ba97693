//! etcd on the same disk in the same run, measured with its own benchmark tool.

use std::{
    error::Error,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// An etcd of our own; stopped when dropped.
pub struct EtcdProcess {
    process: Child,
    benchmark: PathBuf,
    endpoint: String,
    _dir: tempfile::TempDir,
}

impl EtcdProcess {
    /// Starts the program `etcd` with its data under `dir`.
    pub fn start(etcd: &Path, benchmark: &Path, dir: &Path) -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir_in(dir)?;
        let ports = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let [client, peer] = ports.each_ref().map(|port| port.local_addr().map(|address| format!("http://{address}")));
        let (client, peer) = (client?, peer?);
        drop(ports);
        let process = Command::new(etcd)
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let endpoint = client.trim_start_matches("http://").to_owned();
        let started = Self { process, benchmark: benchmark.into(), endpoint, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(30);
        while started.run(1, 1).is_err() {
            if Instant::now() > deadline {
                return Err("etcd does not answer".into());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(started)
    }

    /// Durable puts of 1 KiB per second with so many writers.
    pub fn puts(&self, writers: usize, total: usize) -> Result<f64, Box<dyn Error>> {
        let out = self.run(writers, total)?;
        let rate = out.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
        Ok(rate.ok_or("no rate in the output of the benchmark")?.trim().parse()?)
    }

    fn run(&self, writers: usize, total: usize) -> Result<String, Box<dyn Error>> {
        let connections = writers.min(64).to_string();
        let out = Command::new(&self.benchmark)
            .args(["--endpoints", &self.endpoint, "--conns", &connections, "--clients", &writers.to_string()])
            .args(["put", "--key-size=40", "--val-size=1024", "--sequential-keys"])
            .args(["--key-space-size", &total.to_string(), "--total", &total.to_string()])
            .output()?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).into());
        }
        Ok(String::from_utf8_lossy(&out.stdout).into())
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        // It is ours, and nothing of it is kept.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
