//! Measures what custom resources cost the API server, beside upstream's, one after the other on the same machine with the same
//! client: the definitions of seven projects, then clones of one of them, the document about all, and rules of objects.
//!
//! `bench/custom/run` builds what it needs and runs it. CPU and memory are the servers' own, so they do not depend on the client.

mod definitions;
mod rules;
mod side;

use anyhow::Context;
use clap::Parser;
use ferry_bench_api::{pki::BenchPki, servers};
use side::{ReportRow, ServerSide};

/// Measure custom resources beside upstream
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    programs: servers::ServerPrograms,
    /// Number of clones of a CRD, each in a group of its own
    #[arg(long, default_value_t = 500)]
    clones: usize,
    /// Number of objects created with rules, and without
    #[arg(long, default_value_t = 4000)]
    objects: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let programs = &arguments.programs;
    let definitions = definitions::read()?;
    let scratch = tempfile::Builder::new().prefix("bench-custom-").tempdir_in(&programs.dir)?;
    let pki = BenchPki::create(scratch.path())?;
    let server = servers::ferry(&programs.ferry, &pki, &scratch.path().join("ferry")).await?;
    let ours = measured(ServerSide::new(server, &pki).await?, &arguments, &definitions).await.context("ferry")?;
    let mut theirs = Vec::new();
    if let (Some(upstream), Some(etcd)) = (&programs.upstream, &programs.etcd) {
        let server = servers::upstream(upstream, etcd, &pki, &scratch.path().join("upstream")).await?;
        theirs = measured(ServerSide::new(server, &pki).await?, &arguments, &definitions).await.context("upstream")?;
    }
    side::print(&ours, &theirs);
    Ok(())
}

async fn measured(
    mut side: ServerSide<'_>,
    arguments: &Arguments,
    definitions: &[serde_json::Value],
) -> anyhow::Result<Vec<ReportRow>> {
    side.settled().await?;
    let idle = side.used()?;
    let mut rows = vec![ReportRow::new("idle: memory", "MB", idle.memory)];
    let took = definitions::establish(&mut side, definitions).await?;
    rows.push(ReportRow::new("94 definitions, until established", "s", took.as_secs_f64()));
    rows.extend(side.since(&idle, "94 definitions").await?);
    let clones = definitions::clones(definitions, arguments.clones)?;
    let took = definitions::establish(&mut side, &clones).await?;
    rows.push(ReportRow::new(&format!("{} clones, until established", clones.len()), "s", took.as_secs_f64()));
    let (took, size) = definitions::document(&mut side).await?;
    rows.push(ReportRow::new("/openapi/v2 with all, first read", "s", took.as_secs_f64()));
    rows.push(ReportRow::new("/openapi/v2 with all, size", "MB", size as f64 / 1e6));
    rows.extend(side.since(&idle, "all definitions and the document").await?);
    rows.extend(rules::measure(&mut side, arguments.objects).await?);
    Ok(rows)
}
