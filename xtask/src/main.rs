//! Tasks around the repository that are more than one command: `cargo xtask <task>`.

mod image;
mod measure;
mod packages;
mod process;
mod test;
mod tidy;
mod upstream;
mod walk;

use std::{path::Path, process::ExitCode};

use clap::{Parser, Subcommand};

/// Tasks around this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Image(image::Args),
    Measure(measure::Args),
    Upstream(upstream::Args),
    Walk(walk::Args),
    /// Check format, lints and tidiness, and run all tests
    Test,
    /// Check what the compiler does not: dependency directions, file sizes, names, forbidden words
    Tidy,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Image(args) => image::run(&args),
        Task::Measure(args) => measure::run(&args),
        Task::Upstream(args) => upstream::run(&args),
        Task::Walk(args) => walk::run(&args),
        Task::Test => test::run(),
        Task::Tidy => tidy::run(repository()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn repository() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}
