//! One of the servers: how it is asked, what it has used, and the table of both.

use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use ferry_bench_api::{
    client::{BenchClient, BenchRequest, BenchResponse},
    pki::BenchPki,
    servers::{MeasuredServer, expect},
};
use futures::future::try_join_all;
use http::Method;
use serde_json::Value;
use tokio::time::sleep;

/// A server rests when it uses less than this in [`PAUSE`].
const RESTS: f64 = 0.06;
const PAUSE: Duration = Duration::from_secs(3);
/// Samples in which the server may be busy.
const PATIENCE: usize = 100;

const JSON: &str = "application/json";

/// The resource usage of a server so far.
pub struct ResourceUsage {
    /// Seconds of CPU.
    pub cpu: f64,
    /// Megabytes in memory.
    pub memory: f64,
}

/// A server, and a connection to it.
pub struct ServerSide<'a> {
    server: MeasuredServer,
    pki: &'a BenchPki,
    client: BenchClient,
}

impl<'a> ServerSide<'a> {
    /// Connects to a server.
    pub async fn new(server: MeasuredServer, pki: &'a BenchPki) -> anyhow::Result<Self> {
        let client = BenchClient::connect(server.port, &pki.client()?).await?.uncompressed();
        Ok(Self { server, pki, client })
    }

    /// More connections.
    pub async fn clients(&self, count: usize) -> anyhow::Result<Vec<BenchClient>> {
        let tls = self.pki.client()?;
        try_join_all((0..count).map(|_| BenchClient::connect(self.server.port, &tls))).await
    }

    /// Reads a path.
    pub async fn get(&mut self, path: &str) -> anyhow::Result<BenchResponse> {
        let answer = self.client.get(path, JSON).await?;
        expect(answer.status, 200, path)?;
        Ok(answer)
    }

    /// Creates an object.
    pub async fn create(&mut self, path: &str, object: &Value) -> anyhow::Result<()> {
        create(&mut self.client, path, object.to_string().into()).await
    }

    /// The usage so far.
    pub fn used(&self) -> anyhow::Result<ResourceUsage> {
        Ok(ResourceUsage { cpu: self.server.cpu()?.as_secs_f64(), memory: self.server.resident()? as f64 / 1e6 })
    }

    /// Waits until it has done what it does after it answered.
    pub async fn settled(&self) -> anyhow::Result<()> {
        let mut before = self.used()?.cpu;
        for _ in 0..PATIENCE {
            sleep(PAUSE).await;
            let now = self.used()?.cpu;
            if now - before < RESTS {
                return Ok(());
            }
            before = now;
        }
        bail!("the server at port {} does not come to rest", self.server.port)
    }

    /// The usage since `before`, once the server is idle.
    pub async fn since(&self, before: &ResourceUsage, what: &str) -> anyhow::Result<[ReportRow; 2]> {
        self.settled().await?;
        let now = self.used()?;
        Ok([
            ReportRow::new(&format!("{what}: CPU"), "s", now.cpu - before.cpu),
            ReportRow::new(&format!("{what}: memory more"), "MB", now.memory - before.memory),
        ])
    }
}

/// Creates an object.
pub async fn create(client: &mut BenchClient, path: &str, body: Bytes) -> anyhow::Result<()> {
    let answer = client.call(BenchRequest { method: Method::POST, path, media: JSON, body }).await?;
    if answer.status == 201 { Ok(()) } else { bail!("{path}: {}", String::from_utf8_lossy(&answer.body)) }
}

/// A figure.
pub struct ReportRow {
    what: String,
    unit: &'static str,
    /// The figure.
    pub value: f64,
}

impl ReportRow {
    /// A figure with its unit.
    pub fn new(what: &str, unit: &'static str, value: f64) -> Self {
        Self { what: what.to_owned(), unit, value }
    }
}

/// Prints the figures side by side, and how many times less Ferry takes.
pub fn print(ours: &[ReportRow], theirs: &[ReportRow]) {
    println!("| what | unit | Ferry | upstream | ratio |\n|---|---|---|---|---|");
    for (at, row) in ours.iter().enumerate() {
        let other = theirs.get(at).map(|other| other.value);
        let shown = other.map_or("-".into(), |other| format!("{other:.2}"));
        let ratio = other.map_or("-".into(), |other| format!("{:.1}", other / row.value.max(0.001)));
        println!("| {} | {} | {:.2} | {shown} | {ratio} |", row.what, row.unit, row.value);
    }
}
