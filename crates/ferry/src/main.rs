//! The `ferry` program: a Kubernetes cluster on this machine from one command.
//!
//! `cli` says what can be typed; `up`, `status` and `down` do it; `run` is the cluster itself. The other modules each
//! own one thing that a cluster needs: certificates, kubeconfig, container runtime, network. `kube_apiserver` is the
//! program under that component's name.

mod atomic;
mod caller;
mod cli;
mod containerd;
mod down;
mod flags;
mod instance;
mod kube_apiserver;
mod kubeconfig;
mod log;
mod network;
mod options;
mod pidfile;
mod pki;
mod preflight;
mod refusal;
mod run;
mod runtime_check;
mod screen;
mod shutdown;
mod state;
mod status;
mod steps;
mod storage;
mod store_commands;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    sys::memory::give_back_after_bursts();
    cli::main()
}
