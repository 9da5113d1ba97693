//! `cargo xtask measure`: the figures of the README, from the shipped binary on a data directory of their own.
//!
//! Each run starts from nothing: `ferry up` to Ready, resident memory when idle, a Deployment to three ready pods.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    process::{self, command, output, step},
    repository,
};

/// Measure start, memory and a Deployment, and print the median of several runs
#[derive(Debug, clap::Args)]
pub struct MeasureArgs {
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,

    /// Seconds of idling before memory is read
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    idle: u64,

    /// Data directory of the measured cluster; removed afterwards
    #[arg(long, value_name = "DIR", default_value = "/tmp/ferry-measure")]
    data_dir: PathBuf,
}

/// The figures of one run.
struct RunFigures {
    ready: Duration,
    resident: u64,
    running: Duration,
}

pub fn run(args: &MeasureArgs) -> Result<()> {
    step("build", || process::run(command("cargo build --release -p ferry").current_dir(repository())))?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    let bench = ClusterBench { ferry: std::path::absolute(target)?.join("release/ferry"), data_dir: &args.data_dir };
    let mut all = Vec::new();
    for at in 0..args.runs {
        let figures = bench.once(Duration::from_secs(args.idle));
        bench.ferry("down --purge").output().context("cannot run ferry")?;
        let figures = figures?;
        println!(
            "run {}: ready {:.2} s, idle {} MB, three running {:.2} s",
            at + 1,
            figures.ready.as_secs_f64(),
            figures.resident / 1024,
            figures.running.as_secs_f64()
        );
        all.push(figures);
    }
    println!("\nmedian of {}:", all.len());
    println!("  ferry up to Ready                     {:.2} s", median(&all, |f| f.ready.as_secs_f64()));
    println!("  idle resident memory                  {:.0} MB", median(&all, |f| f.resident as f64 / 1024.0));
    println!("  create deployment to three Running    {:.2} s", median(&all, |f| f.running.as_secs_f64()));
    Ok(())
}

fn median(all: &[RunFigures], figure: impl Fn(&RunFigures) -> f64) -> f64 {
    let mut values: Vec<f64> = all.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

struct ClusterBench<'a> {
    ferry: PathBuf,
    data_dir: &'a Path,
}

impl ClusterBench<'_> {
    fn once(&self, idle: Duration) -> Result<RunFigures> {
        let start = Instant::now();
        output(&mut self.ferry("up"))?;
        let ready = start.elapsed();
        thread::sleep(idle);
        let resident = self.resident()?;
        let xtask = env::current_exe()?;
        output(Command::new(xtask).args(["image", "nginx", "--data-dir"]).arg(self.data_dir))?;
        let start = Instant::now();
        output(&mut self.kubectl("create deployment nginx --image=nginx --replicas=3"))?;
        output(&mut self.kubectl("wait --for=jsonpath={.status.readyReplicas}=3 deployment/nginx"))?;
        Ok(RunFigures { ready, resident, running: start.elapsed() })
    }

    fn ferry(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.ferry);
        command.args(arguments.split_whitespace()).arg("--data-dir").arg(self.data_dir);
        if arguments.starts_with("up") {
            command.arg("--kubeconfig").arg(self.data_dir.with_extension("kubeconfig"));
        }
        command
    }

    fn kubectl(&self, arguments: &str) -> Command {
        let mut command = command(&format!("kubectl {arguments}"));
        command.env("KUBECONFIG", self.data_dir.with_extension("kubeconfig"));
        command
    }

    /// Resident memory of the process, in kB.
    fn resident(&self) -> Result<u64> {
        let text = fs::read_to_string(self.data_dir.join("ferry.pid"))?;
        let pid = text.split_whitespace().next().context("ferry.pid is empty")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")
    }
}
