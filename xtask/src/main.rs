//! Tasks around the repository that are more than one command: `cargo xtask <task>`.

mod deny;
mod fresh;
mod image;
mod measure;
mod packages;
mod process;
mod test;
mod tidy;
mod upstream;
mod walk;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::LazyLock,
};

use anyhow::Context;
use clap::{Parser, Subcommand};

/// Tasks around this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Fresh(fresh::FreshArgs),
    Image(image::ImageArgs),
    Measure(measure::MeasureArgs),
    Upstream(upstream::UpstreamArgs),
    Walk(walk::WalkArgs),
    /// Check licences, sources, duplicates and known vulnerabilities of dependencies
    Deny,
    /// Check format, lints, dependencies and tidiness, and run all tests
    Test,
    /// Check what the compiler does not: dependency directions, file sizes, names, forbidden words
    Tidy,
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().task {
        Task::Fresh(args) => fresh::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Measure(args) => measure::run(&args),
        Task::Upstream(args) => upstream::run(&args),
        Task::Walk(args) => walk::run(&args),
        Task::Deny => deny::check(),
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

/// The root of the repository: the one that `cargo` runs this program from, because a shared target directory may hold a
/// program that was built in another clone.
fn repository() -> &'static Path {
    static REPOSITORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let xtask = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf)
    });
    &REPOSITORY
}

/// A folder for what is made once and used by every clone: `${XDG_CACHE_HOME:-~/.cache}/ferry/NAME`.
fn cache_dir(name: &str) -> anyhow::Result<PathBuf> {
    let set = env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let dir = set.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?.join("ferry").join(name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}
