//! Clients that others wrote, unmodified, against the API server of the shipped binary: kubectl, kube-rs, the Python
//! client and client-go. Those that are not on the machine and cannot be had are skipped, with a word.

#[path = "clients/go.rs"]
mod go;
#[path = "clients/kube_rs.rs"]
mod kube_rs;
#[path = "clients/kubectl.rs"]
mod kubectl;
#[path = "clients/python.rs"]
mod python;

use std::process::Command;

/// Whether a program is there; says that its test is skipped where it is not.
fn has(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}
