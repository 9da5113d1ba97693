//! Measures controller managers on loads that are theirs: Ferry's with its own API server, upstream's with kube-apiserver
//! and etcd, one after the other. Pods are played: nothing schedules or runs them.
//!
//! `bench/run controllers` builds what it needs and runs it; it prints a line of JSON per row.

mod cluster;
mod deployments;
mod fake_kubelet;
mod idle;
mod jobs;
mod load;
mod manager;
mod namespace;
mod services;
mod watch;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use ferry_bench_api::{
    pki::BenchPki,
    servers::{self, MeasuredServer, ServerPrograms},
};

use crate::{
    cluster::BenchCluster,
    fake_kubelet::FakeKubelet,
    load::LoadRun,
    manager::{ControllerManagerProgram, MeasuredControllerManager},
};

/// Measure controller managers
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    programs: ServerPrograms,
    /// Upstream's kube-controller-manager
    #[arg(long, requires = "upstream")]
    kube_controller_manager: Option<PathBuf>,
    /// The loads (default: all)
    #[arg(long = "load")]
    loads: Vec<ControllerLoad>,
    /// The part of each load's objects that there are
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Leave Ferry out
    #[arg(long)]
    upstream_only: bool,
    /// Both controller managers work on Ferry's API server
    #[arg(long)]
    same_server: bool,
    /// Seconds to wait before the end of each load, for a look at the processes
    #[arg(long)]
    linger: Option<u64>,
}

/// A load.
#[derive(Clone, Copy, ValueEnum)]
enum ControllerLoad {
    /// 1,000 Deployments of 10 pods: created, at rest, rolled, deleted
    Deployments,
    /// 10,000 Jobs of one pod
    Jobs,
    /// 5,000 Services of 10 endpoints
    Services,
    /// A namespace with 50,000 objects, deleted
    Namespace,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let loads = if arguments.loads.is_empty() { ControllerLoad::value_variants() } else { &arguments.loads };
    for load in loads {
        if !arguments.upstream_only {
            measure(&arguments, *load, "ferry").await?;
        }
        if arguments.kube_controller_manager.is_some() {
            measure(&arguments, *load, "upstream").await?;
        }
    }
    Ok(())
}

/// Runs a load on a cluster of its own.
async fn measure(arguments: &Arguments, load: ControllerLoad, side: &'static str) -> anyhow::Result<()> {
    let scratch = tempfile::Builder::new().prefix("bench-controllers-").tempdir_in(&arguments.programs.dir)?;
    let pki = BenchPki::create(scratch.path())?;
    let server = start_server(arguments, side, &pki, &scratch.path().join("server")).await?;
    let program = match side {
        "ferry" => ControllerManagerProgram {
            file: arguments.programs.ferry.clone(),
            command: Some("kube-controller-manager"),
        },
        _ => ControllerManagerProgram {
            file: arguments.kube_controller_manager.clone().context("no kube-controller-manager")?,
            command: None,
        },
    };
    let manager = MeasuredControllerManager::start(&program, &server, &pki, scratch.path()).await?;
    let cluster = BenchCluster::connect(server.port, &pki.client()?).await?;
    let run = LoadRun { side, scale: arguments.scale, cluster, server, manager };
    let kubelet = FakeKubelet::start(run.cluster.clone()).await?;
    match load {
        ControllerLoad::Deployments => deployments::run(&run).await,
        ControllerLoad::Jobs => jobs::run(&run).await,
        ControllerLoad::Services => services::run(&run).await,
        ControllerLoad::Namespace => namespace::run(&run).await,
    }
    .with_context(|| format!("on {side}"))?;
    if let Some(seconds) = arguments.linger {
        eprintln!("the controller manager is process {}", run.manager.pid());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    kubelet.stop();
    Ok(())
}

async fn start_server(
    arguments: &Arguments,
    side: &str,
    pki: &BenchPki,
    dir: &std::path::Path,
) -> anyhow::Result<MeasuredServer> {
    let programs = &arguments.programs;
    if side == "ferry" || arguments.same_server {
        return servers::ferry(&programs.ferry, pki, dir).await;
    }
    let server = programs.upstream.as_deref().context("no kube-apiserver")?;
    servers::upstream(server, programs.etcd.as_deref().context("no etcd")?, pki, dir).await
}
