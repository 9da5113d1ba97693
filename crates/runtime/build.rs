//! Compiles the pause program for the target, as a static binary that `src/pause.rs` embeds.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=pause/pause.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=bin", "--crate-name=pause", "--target", &variable("TARGET")]);
    for option in ["panic=abort", "opt-level=s", "strip=symbols", "relocation-model=static"] {
        rustc.args(["-C", option]);
    }
    for argument in ["-nostartfiles", "-static", "-Wl,--build-id=none"] {
        rustc.args(["-C", &format!("link-arg={argument}")]);
    }
    // The linker configured for this target.
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    rustc.arg("-o").arg(Path::new(&variable("OUT_DIR")).join("pause")).arg("pause/pause.rs");
    let status = rustc.status().unwrap_or_else(|error| panic!("cannot run {rustc:?}: {error}"));
    assert!(status.success(), "{rustc:?} failed: {status}");
}
