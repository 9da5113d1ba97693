//! Measures the API server beside upstream's, one after the other on the same machine with the same client:
//! what each operation costs the server in CPU, how many go through, and what memory is left in use.
//!
//! `bench/api/run` builds what it needs and runs it; CPU is the servers' own, so it does not depend on the client.

mod loads;
mod report;

use clap::Parser;
use ferry_bench_api::{pki, servers};

/// Measure the API server beside upstream's
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    programs: servers::ServerPrograms,
    /// Concurrent clients, each on a connection of its own
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Number of objects
    #[arg(long, default_value_t = 5000)]
    objects: usize,
    /// Number of watchers
    #[arg(long, default_value_t = 200)]
    watchers: usize,
    /// Only the loads whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Print lines of JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let programs = &arguments.programs;
    let scratch = tempfile::Builder::new().prefix("bench-api-").tempdir_in(&programs.dir)?;
    let pki = pki::BenchPki::create(scratch.path())?;
    let plan = loads::LoadPlan {
        clients: arguments.clients,
        objects: arguments.objects,
        watchers: arguments.watchers,
        only: arguments.only.clone(),
    };
    let mut columns = Vec::new();
    let server = servers::ferry(&programs.ferry, &pki, &scratch.path().join("ferry")).await?;
    columns.push(("ferry", measured(&server, &pki, &plan).await?));
    drop(server);
    if let (Some(upstream), Some(etcd)) = (&programs.upstream, &programs.etcd) {
        let server = servers::upstream(upstream, etcd, &pki, &scratch.path().join("upstream")).await?;
        columns.push(("upstream", measured(&server, &pki, &plan).await?));
    }
    if arguments.json {
        report::print_json(&columns);
    } else {
        report::print(&columns);
    }
    Ok(())
}

async fn measured(
    server: &servers::MeasuredServer,
    pki: &pki::BenchPki,
    plan: &loads::LoadPlan,
) -> anyhow::Result<report::ReportColumn> {
    let idle = server.resident()?;
    let results = loads::run(server, pki, plan).await?;
    Ok(report::ReportColumn { idle, results, after: server.resident()? })
}
