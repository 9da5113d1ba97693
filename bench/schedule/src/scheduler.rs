//! A scheduler that is measured, started alike: Ferry's or upstream's, with client limits that do not hold it back.

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
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::metrics::Histogram;

/// Time to become ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests per second that a client may send.
const CLIENT_LIMIT: u32 = 5000;

/// A program with its first arguments.
pub struct SchedulerProgram {
    /// The file.
    pub file: PathBuf,
    /// The name of the component, where the file has several.
    pub command: Option<&'static str>,
}

/// A scheduler that runs.
pub struct MeasuredScheduler {
    process: MeasuredProcess,
    client: BenchClient,
}

/// Figures of a scheduler at one time.
pub struct SchedulerFigures {
    /// CPU time used so far.
    pub cpu: Duration,
    /// Memory in use.
    pub resident: u64,
    /// Durations of the search for a node.
    pub cycles: Histogram,
}

impl MeasuredScheduler {
    /// Starts a scheduler for a server and waits until it schedules.
    pub async fn start(
        program: &SchedulerProgram,
        server: &MeasuredServer,
        pki: &BenchPki,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let kubeconfig = dir.join("scheduler.kubeconfig");
        fs::write(&kubeconfig, pki.kubeconfig(server.port))?;
        let config = dir.join("scheduler.json");
        let document = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": CLIENT_LIMIT, "burst": CLIENT_LIMIT},
        });
        fs::write(&config, document.to_string())?;
        let port = free_port()?;
        let mut arguments: Vec<String> = program.command.iter().map(|command| (*command).to_owned()).collect();
        arguments.extend([
            format!("--config={}", config.display()),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", pki.server.0.display()),
            format!("--tls-private-key-file={}", pki.server.1.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics".into(),
        ]);
        let mut process = MeasuredProcess::start(&program.file, &arguments, &dir.join("scheduler.log"))?;
        let (deadline, tls) = (Instant::now() + PATIENCE, pki.client()?);
        loop {
            if process.ended() {
                let log = fs::read_to_string(dir.join("scheduler.log")).unwrap_or_default();
                bail!("the scheduler ended: {}", &log[log.len().saturating_sub(500)..]);
            }
            if let Ok(mut client) = BenchClient::connect(port, &tls).await
                && let Ok(answer) = client.get("/readyz", "*/*").await
                && answer.status == 200
            {
                return Ok(Self { process, client: client.uncompressed() });
            }
            if Instant::now() > deadline {
                bail!("the scheduler was not ready in {PATIENCE:?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads its figures.
    pub async fn figures(&mut self) -> anyhow::Result<SchedulerFigures> {
        let answer = self.client.get("/metrics", "text/plain").await?;
        if answer.status != 200 {
            bail!("/metrics of the scheduler was answered with {}", answer.status);
        }
        let text = String::from_utf8_lossy(&answer.body);
        Ok(SchedulerFigures {
            cpu: self.process.cpu()?,
            resident: self.process.resident()?,
            cycles: Histogram::read(&text, "scheduler_scheduling_algorithm_duration_seconds"),
        })
    }
}
