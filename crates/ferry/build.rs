//! Passes the commit that is built to the compiler, for `/version`, and has the linker fold identical functions.

use std::{env, process::Command};

fn main() {
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_default();
    let date = git(&["log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"]);
    println!("cargo:rustc-env=FERRY_GIT_COMMIT={commit}");
    println!("cargo:rustc-env=FERRY_BUILD_DATE={}", date.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()));
    // The reflog of HEAD changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") && links_with_lld() {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether the target's linker is the LLD that comes with Rust, which folds the copies of generic functions that each crate
/// has of its own: a third of the code.
fn links_with_lld() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    is("TARGET", "x86_64-unknown-linux-gnu")
        && is("HOST", "x86_64-unknown-linux-gnu")
        && env::var("RUSTC_LINKER").is_err()
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).env("TZ", "UTC").output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
