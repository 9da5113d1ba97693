//! The two servers, started alike: Ferry's API server on its own store, upstream's on etcd.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use crate::{client::BenchClient, pki::BenchPki, process::MeasuredProcess};

/// The programs that are measured, and where.
#[derive(clap::Args)]
pub struct ServerPrograms {
    /// Ferry's binary
    #[arg(long)]
    pub ferry: PathBuf,
    /// Upstream's kube-apiserver, to measure in the same run
    #[arg(long, requires = "etcd")]
    pub upstream: Option<PathBuf>,
    /// The etcd for it
    #[arg(long)]
    pub etcd: Option<PathBuf>,
    /// Directory of files while measuring
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

/// Time for a server to become ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers, and every process that works for it.
pub struct MeasuredServer {
    /// Its port on loopback.
    pub port: u16,
    processes: Vec<MeasuredProcess>,
}

impl MeasuredServer {
    /// The CPU time that it has used.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        self.processes.iter().map(MeasuredProcess::cpu).sum()
    }

    /// The memory that it has in use.
    pub fn resident(&self) -> anyhow::Result<u64> {
        self.processes.iter().map(MeasuredProcess::resident).sum()
    }
}

/// Starts Ferry's API server.
pub async fn ferry(program: &Path, pki: &BenchPki, dir: &Path) -> anyhow::Result<MeasuredServer> {
    ferry_with(program, pki, dir, &[]).await
}

/// Starts Ferry's API server with more flags.
pub async fn ferry_with(
    program: &Path,
    pki: &BenchPki,
    dir: &Path,
    flags: &[String],
) -> anyhow::Result<MeasuredServer> {
    fs::create_dir_all(dir)?;
    let port = free_port()?;
    let mut arguments = common(pki, port, dir);
    arguments.extend_from_slice(flags);
    arguments.insert(0, "kube-apiserver".into());
    arguments.push(format!("--data-dir={}", dir.join("data").display()));
    let process = MeasuredProcess::start(program, &arguments, &dir.join("ferry.log"))?;
    ready(MeasuredServer { port, processes: vec![process] }, pki).await
}

/// Starts upstream's API server and its etcd.
pub async fn upstream(program: &Path, etcd: &Path, pki: &BenchPki, dir: &Path) -> anyhow::Result<MeasuredServer> {
    upstream_with((program, etcd), pki, dir, &[]).await
}

/// Starts upstream's API server and its etcd with more flags.
pub async fn upstream_with(
    (program, etcd): (&Path, &Path),
    pki: &BenchPki,
    dir: &Path,
    flags: &[String],
) -> anyhow::Result<MeasuredServer> {
    fs::create_dir_all(dir)?;
    let (clients, peers, port) = (free_port()?, free_port()?, free_port()?);
    let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let arguments = [
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
    ];
    let etcd = MeasuredProcess::start(etcd, &arguments, &dir.join("etcd.log"))?;
    let mut arguments = common(pki, port, dir);
    arguments.push(format!("--etcd-servers={clients}"));
    arguments.extend_from_slice(flags);
    let server = MeasuredProcess::start(program, &arguments, &dir.join("kube-apiserver.log"))?;
    ready(MeasuredServer { port, processes: vec![etcd, server] }, pki).await
}

fn common(pki: &BenchPki, port: u16, dir: &Path) -> Vec<String> {
    vec![
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--cert-dir={}", dir.join("certificates").display()),
        format!("--tls-cert-file={}", pki.server.0.display()),
        format!("--tls-private-key-file={}", pki.server.1.display()),
        format!("--client-ca-file={}", pki.ca.display()),
        format!("--service-account-key-file={}", pki.tokens.1.display()),
        format!("--service-account-signing-key-file={}", pki.tokens.0.display()),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=Node,RBAC".into(),
    ]
}

/// Returns a port that is free now.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn ready(mut server: MeasuredServer, pki: &BenchPki) -> anyhow::Result<MeasuredServer> {
    let deadline = Instant::now() + PATIENCE;
    let tls = pki.client()?;
    loop {
        if server.processes.iter_mut().any(MeasuredProcess::ended) {
            bail!("the server at port {} ended before it was ready; its log is beside its data", server.port);
        }
        if let Ok(mut client) = BenchClient::connect(server.port, &tls).await
            && let Ok(answer) = client.get("/readyz", "*/*").await
            && answer.status == 200
        {
            return Ok(server);
        }
        if Instant::now() > deadline {
            bail!("the server at port {} was not ready in {PATIENCE:?}", server.port);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Reads a number of a text, for messages that say what is wrong.
pub fn expect(status: u16, wanted: u16, what: &str) -> anyhow::Result<()> {
    if status == wanted { Ok(()) } else { Err(anyhow::anyhow!("{what} was answered with {status}, not {wanted}")) }
        .context("the measurement is not valid")
}
