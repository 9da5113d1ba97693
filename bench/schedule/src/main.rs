//! Measures schedulers on the workloads of upstream's `scheduler_perf`: Ferry's with its own API server, upstream's with
//! kube-apiserver and etcd, one after the other. Nodes are objects; nothing runs on them.
//!
//! `bench/run schedule` builds what it needs and runs it; it prints a line of JSON per row.

mod cluster;
mod metrics;
mod run;
mod scheduler;
mod templates;
mod workloads;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use ferry_bench_api::{
    pki::BenchPki,
    servers::{self, MeasuredServer},
};
use serde_json::json;

use crate::{
    scheduler::{MeasuredScheduler, SchedulerProgram},
    workloads::Workload,
};

/// Measure schedulers
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    programs: servers::ServerPrograms,
    /// Upstream's kube-scheduler
    #[arg(long, requires = "upstream")]
    kube_scheduler: Option<PathBuf>,
    /// Only the workloads whose names contain one of these
    #[arg(long)]
    workload: Vec<String>,
    /// Only the workloads with this many nodes
    #[arg(long)]
    nodes: Option<usize>,
    /// Leave Ferry out
    #[arg(long)]
    upstream_only: bool,
    /// Print the names of the workloads
    #[arg(long)]
    list: bool,
    /// Seconds to wait before the end of each workload, for a look at the processes
    #[arg(long)]
    linger: Option<u64>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let chosen = workloads::all().into_iter().filter(|workload| {
        let named =
            arguments.workload.is_empty() || arguments.workload.iter().any(|part| workload.name().contains(part));
        named && arguments.nodes.is_none_or(|nodes| workload.nodes == nodes)
    });
    for workload in chosen {
        if arguments.list {
            println!("{}", workload.name());
            continue;
        }
        if !arguments.upstream_only {
            measure(&arguments, &workload, "ferry").await?;
        }
        if arguments.kube_scheduler.is_some() {
            measure(&arguments, &workload, "upstream").await?;
        }
    }
    Ok(())
}

async fn measure(arguments: &Arguments, workload: &Workload, side: &'static str) -> anyhow::Result<()> {
    let programs = &arguments.programs;
    let scratch = tempfile::Builder::new().prefix("bench-schedule-").tempdir_in(&programs.dir)?;
    let pki = BenchPki::create(scratch.path())?;
    let server = start_server(programs, side, &pki, scratch.path()).await?;
    let program = match side {
        "ferry" => SchedulerProgram { file: programs.ferry.clone(), command: Some("kube-scheduler") },
        _ => SchedulerProgram { file: arguments.kube_scheduler.clone().context("no kube-scheduler")?, command: None },
    };
    let mut scheduler = MeasuredScheduler::start(&program, &server, &pki, scratch.path()).await?;
    let result = run::run_workload(workload, &server, &mut scheduler, &pki).await;
    let result = result.with_context(|| format!("{} on {side}", workload.name()))?;
    for (row, unit, value) in run::rows(workload, &result) {
        println!("{}", json!({"server": side, "row": row, "unit": unit, "value": value}));
    }
    if let Some(seconds) = arguments.linger {
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
    }
    Ok(())
}

/// Starts the API server without the admission that needs controllers, as `scheduler_perf` does.
async fn start_server(
    programs: &servers::ServerPrograms,
    side: &str,
    pki: &BenchPki,
    dir: &Path,
) -> anyhow::Result<MeasuredServer> {
    let flags = ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority".to_owned()];
    match side {
        "ferry" => servers::ferry_with(&programs.ferry, pki, &dir.join("server"), &flags).await,
        _ => {
            let (server, etcd) = (programs.upstream.as_deref(), programs.etcd.as_deref());
            let programs = (server.context("no kube-apiserver")?, etcd.context("no etcd")?);
            servers::upstream_with(programs, pki, &dir.join("server"), &flags).await
        }
    }
}
