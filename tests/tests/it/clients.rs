//! Clients that others wrote, unmodified, against the API server of the shipped binary: kubectl, kube-rs, the Python
//! client and client-go. Those that are not on the machine and cannot be had are skipped, with a word.

mod go;
mod kube_rs;
mod kubectl;
mod python;

use std::process::Command;

/// Whether a program is there; says that its test is skipped where it is not.
fn has(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !found {
        skip::skip_test(format_args!("{program} is not installed"));
    }
    found
}
