//! A cluster at rest: what the controller manager uses and writes while nothing changes.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::time::sleep;

use crate::{cluster::JSON, load::LoadRun};

/// Time after the last change until the cluster counts as at rest: the periods of controllers that run late.
const SETTLE: Duration = Duration::from_secs(10);
/// Time over which CPU is measured.
const IDLE: Duration = Duration::from_secs(30);

/// Measures CPU and revisions per second. Only the controller manager writes meanwhile, leases of leaders aside,
/// which there are none of: every revision is its own.
pub async fn run(run: &LoadRun, what: &str) -> anyhow::Result<()> {
    sleep(SETTLE).await;
    let (cpu, revision) = (run.manager.precise_cpu()?, revision(run).await?);
    sleep(IDLE).await;
    let seconds = IDLE.as_secs_f64();
    run.row(&format!("{what}: CPU"), "ms/s", (run.manager.precise_cpu()? - cpu).as_secs_f64() * 1000.0 / seconds);
    run.row(&format!("{what}: revisions of the store"), "", (self::revision(run).await? - revision) as f64);
    run.row(&format!("{what}: memory"), "MB", run.manager.resident()? as f64 / 1e6);
    Ok(())
}

/// The revision of the store.
async fn revision(run: &LoadRun) -> anyhow::Result<u64> {
    let answer = run.cluster.call(Method::GET, "/api/v1/namespaces?limit=1", JSON, Bytes::new()).await?;
    let list: Value = serde_json::from_slice(&answer.body)?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a list without a resource version")?.parse()?)
}
