//! `cargo xtask test`: everything that must be green before a change goes in.

use anyhow::Result;

use crate::{
    packages::{self, CNI_PLUGINS, CONTAINERD, ETCD, IPROUTE, KUBECTL, MMDEBSTRAP, NFTABLES, RUNC, UTIL_LINUX},
    process::{self, command},
    repository,
};

const NEEDED: [packages::Package; 9] =
    [KUBECTL, CONTAINERD, RUNC, CNI_PLUGINS, NFTABLES, IPROUTE, MMDEBSTRAP, ETCD, UTIL_LINUX];

/// Programs are built before the tests run, because the end-to-end tests start them.
const COMMANDS: [&str; 5] = [
    "cargo fmt --check",
    "cargo clippy --workspace --all-targets -- -D warnings",
    "cargo build -p ferry -p ferry-example-initializers",
    "cargo test --workspace",
    "python3 -m unittest discover --start-directory conformance --top-level-directory conformance",
];

pub fn run() -> Result<()> {
    packages::ensure(&NEEDED)?;
    for line in COMMANDS {
        process::run(command(line).current_dir(repository()))?;
    }
    Ok(())
}
