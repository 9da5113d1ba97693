//! Passes the commit that is built to the compiler, for `/version`.

use std::process::Command;

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
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).env("TZ", "UTC").output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
