//! `cargo deny`: licences, sources, duplicates and known vulnerabilities of dependencies, as `deny.toml` says.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{cache_dir, process, process::step, repository};

const VERSION: &str = "0.20.2";

/// Checks the dependency graph. Advisories are checked where their database can be fetched.
pub fn check() -> Result<()> {
    let program = ensure_installed()?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--workspace", "--locked"]).args(arguments).current_dir(repository());
        command
    };
    process::run(&mut deny(&["check", "licenses", "bans", "sources"]))?;
    match process::output(&mut deny(&["fetch", "db"])) {
        Ok(_) => process::run(&mut deny(&["check", "--disable-fetch", "advisories"])),
        Err(error) => {
            let reason = format!("{error:#}");
            println!("advisories are not checked: {}", reason.lines().last().unwrap_or_default());
            Ok(())
        }
    }
}

/// The path of cargo-deny, built into the user's cache if it is not there.
fn ensure_installed() -> Result<PathBuf> {
    let root = cache_dir("tools")?.join(format!("cargo-deny-{VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.is_file() {
        step("build cargo-deny", || {
            let target = root.join("target");
            let mut install = Command::new("cargo");
            // It checks a few hundred packages: unoptimized is fast enough, and built in half the time.
            install.args(["install", "cargo-deny", "--quiet", "--locked", "--debug", "--version", VERSION, "--root"]);
            process::run(install.arg(&root).env("CARGO_TARGET_DIR", &target))?;
            fs::remove_dir_all(&target).with_context(|| target.display().to_string())
        })?;
    }
    Ok(program)
}
