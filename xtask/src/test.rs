//! `cargo xtask test`: everything that must be green before a change goes in.

use std::{
    env,
    ffi::OsString,
    fs, iter,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    cache_dir, deny,
    packages::{
        self, BUSYBOX, CNI_PLUGINS, CONTAINERD, CURL, ETCD, IPROUTE, KUBECTL, MMDEBSTRAP, NFTABLES, PYTHON, RUNC,
        UTIL_LINUX, VENV,
    },
    process::{self, command},
    repository, upstream,
};

const NEEDED: [packages::DebianPackage; 12] =
    [CONTAINERD, RUNC, CNI_PLUGINS, NFTABLES, IPROUTE, MMDEBSTRAP, ETCD, UTIL_LINUX, BUSYBOX, PYTHON, VENV, CURL];

/// Programs are built before the tests run, because the end-to-end tests start them.
const COMMANDS: [&str; 5] = [
    "cargo fmt --check",
    "cargo clippy --workspace --all-targets -- -D warnings",
    "cargo build -p ferry -p ferry-example-initializers",
    "cargo test --workspace --no-fail-fast",
    "python3 -m unittest discover --start-directory conformance --top-level-directory conformance",
];

pub fn run() -> Result<()> {
    packages::ensure_installed(&NEEDED)?;
    deny::check()?;
    let path = path_with_kubectl()?;
    let skipped = cache_dir("")?.join(format!("skipped-{}.txt", std::process::id()));
    let outcome = COMMANDS.iter().try_for_each(|line| {
        process::run(command(line).current_dir(repository()).env("FERRY_SKIP_FILE", &skipped).env("PATH", &path))
    });
    let reported = report_skipped(&skipped);
    outcome.and(reported)
}

/// Returns `$PATH` with a kubectl in it: upstream's, of the version that Ferry speaks, where Go can build it, and
/// Debian's otherwise.
fn path_with_kubectl() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if Command::new("go").arg("version").output().is_err() {
        packages::ensure_installed(&[KUBECTL])?;
        return Ok(path);
    }
    let folder = link_program("kubectl", &upstream::ensure_built("kubectl")?)?;
    Ok(env::join_paths(iter::once(folder).chain(env::split_paths(&path)))?)
}

/// Makes a folder that has `program` under `name`, and returns the folder.
fn link_program(name: &str, program: &Path) -> Result<PathBuf> {
    let mut folder = program.as_os_str().to_owned();
    folder.push(".bin");
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let link = folder.join(name);
    // A link of an earlier run may name another place: the cache is mounted elsewhere in a bare system.
    let _ = fs::remove_file(&link);
    symlink(program, &link).with_context(|| link.display().to_string())?;
    Ok(folder)
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
