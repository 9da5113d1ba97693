//! Measures the store: candidates for its log, then the embedded engine, beside etcd on the same disk in the same run.
//!
//! `cargo run --release -p ferry-bench-store -- --etcd etcd --benchmark benchmark`

mod candidates;
mod embedded;
mod etcd;

use std::{error::Error, path::PathBuf, time::Duration};

use clap::Parser;

/// Measure the store
#[derive(Parser)]
struct Arguments {
    /// Directory of files while measuring
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// An etcd to measure in the same run
    #[arg(long, requires = "benchmark")]
    etcd: Option<PathBuf>,
    /// etcd's own benchmark tool
    #[arg(long)]
    benchmark: Option<PathBuf>,
    /// Seconds per load
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Records of the large store
    #[arg(long, default_value_t = 100_000)]
    records: usize,
    /// With how many writers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 1000])]
    writers: Vec<usize>,
    /// Measure only the large store that is in this directory
    #[arg(long, hide = true)]
    open: Option<PathBuf>,
    /// Compare the candidates for the log too
    #[arg(long)]
    candidates: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(dir) = &arguments.open {
        return embedded::open(dir, arguments.records).await;
    }
    let lasts = Duration::from_secs(arguments.seconds);
    if arguments.candidates {
        candidates::compare(&arguments.dir, lasts)?;
    }
    println!("durable puts/s of 1 KiB                   embedded       etcd      ratio");
    for writers in arguments.writers {
        let ours = embedded::puts(&arguments.dir, writers, lasts).await?;
        let theirs = match (&arguments.etcd, &arguments.benchmark) {
            (Some(etcd), Some(benchmark)) => {
                let etcd = etcd::EtcdProcess::start(etcd, benchmark, &arguments.dir)?;
                let total = if writers == 1 { 2_000 } else { 30_000 };
                Some(etcd.puts(writers, total)?)
            }
            _ => None,
        };
        let compared = theirs.map_or(String::new(), |theirs| format!("{theirs:>11.0}{:>10.1}×", ours / theirs));
        println!("  {writers:>5} writers                         {ours:>10.0}{compared}");
    }
    embedded::large(&arguments.dir, arguments.records).await
}
