//! A controller manager that is measured, started alike: Ferry's or upstream's, with client limits that do not hold it
//! back.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::bail;
use ferry_bench_api::{
    client::BenchClient,
    pki::BenchPki,
    process::MeasuredProcess,
    servers::{MeasuredServer, free_port},
};
use tokio::time::{Instant, sleep};

/// Time to become ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests per second that a client may send.
const CLIENT_LIMIT: u32 = 5000;

/// A program with its first arguments.
pub struct ControllerManagerProgram {
    /// The file.
    pub file: PathBuf,
    /// The name of the component, where the file has several.
    pub command: Option<&'static str>,
}

/// A controller manager that runs.
pub struct MeasuredControllerManager {
    process: MeasuredProcess,
}

impl MeasuredControllerManager {
    /// Starts a controller manager for a server and waits until it answers. Nodes stay healthy without leases, so that
    /// nothing that plays them costs the server requests.
    pub async fn start(
        program: &ControllerManagerProgram,
        server: &MeasuredServer,
        pki: &BenchPki,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let (kubeconfig, port) = (dir.join("controller-manager.kubeconfig"), free_port()?);
        fs::write(&kubeconfig, pki.kubeconfig(server.port))?;
        let mut arguments: Vec<String> = program.command.iter().map(|command| (*command).to_owned()).collect();
        arguments.extend([
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".into(),
            format!("--kube-api-qps={CLIENT_LIMIT}"),
            format!("--kube-api-burst={CLIENT_LIMIT}"),
            format!("--root-ca-file={}", pki.ca.display()),
            format!("--service-account-private-key-file={}", pki.tokens.0.display()),
            "--node-monitor-grace-period=1h".into(),
            "--node-startup-grace-period=1h".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", pki.server.0.display()),
            format!("--tls-private-key-file={}", pki.server.1.display()),
        ]);
        let log = dir.join("controller-manager.log");
        let mut process = MeasuredProcess::start(&program.file, &arguments, &log)?;
        let (deadline, tls) = (Instant::now() + PATIENCE, pki.client()?);
        loop {
            if process.ended() {
                let log = fs::read_to_string(&log).unwrap_or_default();
                bail!("the controller manager ended: {}", &log[log.len().saturating_sub(500)..]);
            }
            if let Ok(mut client) = BenchClient::connect(port, &tls).await
                && let Ok(answer) = client.get("/healthz", "*/*").await
                && answer.status == 200
            {
                return Ok(Self { process });
            }
            if Instant::now() > deadline {
                bail!("the controller manager was not ready in {PATIENCE:?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The CPU time that it has used.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        self.process.cpu()
    }

    /// The same, fine enough for what idles.
    pub fn precise_cpu(&self) -> anyhow::Result<Duration> {
        self.process.precise_cpu()
    }

    /// The memory that it has in use, in bytes.
    pub fn resident(&self) -> anyhow::Result<u64> {
        self.process.resident()
    }

    /// The most memory that it had in use, in bytes.
    pub fn peak(&self) -> anyhow::Result<u64> {
        self.process.peak()
    }
}
