//! `cargo xtask test`: everything that must be green before a change goes in.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    cache_dir, deny,
    packages::{
        self, BUSYBOX, CNI_PLUGINS, CONTAINERD, ETCD, IPROUTE, KUBECTL, MMDEBSTRAP, NFTABLES, PYTHON, RUNC, UTIL_LINUX,
        VENV,
    },
    process::{self, command},
    repository,
};

const NEEDED: [packages::DebianPackage; 12] =
    [KUBECTL, CONTAINERD, RUNC, CNI_PLUGINS, NFTABLES, IPROUTE, MMDEBSTRAP, ETCD, UTIL_LINUX, BUSYBOX, PYTHON, VENV];

/// Programs are built before the tests run, because the end-to-end tests start them.
const COMMANDS: [&str; 5] = [
    "cargo fmt --check",
    "cargo clippy --workspace --all-targets -- -D warnings",
    "cargo build -p ferry -p ferry-example-initializers",
    "cargo test --workspace",
    "python3 -m unittest discover --start-directory conformance --top-level-directory conformance",
];

pub fn run() -> Result<()> {
    packages::ensure_installed(&NEEDED)?;
    deny::check()?;
    let skipped = cache_dir("")?.join(format!("skipped-{}.txt", std::process::id()));
    let outcome = COMMANDS
        .iter()
        .try_for_each(|line| process::run(command(line).current_dir(repository()).env("FERRY_SKIP_FILE", &skipped)));
    let reported = report_skipped(&skipped);
    outcome.and(reported)
}

/// Prints the tests that reported themselves as skipped, and removes the file.
fn report_skipped(file: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(file) else {
        println!("no test was skipped");
        return Ok(());
    };
    println!("{} tests were skipped:", text.lines().count());
    text.lines().for_each(|line| println!("  {line}"));
    fs::remove_file(file).with_context(|| file.display().to_string())
}
