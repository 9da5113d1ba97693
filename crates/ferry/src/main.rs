//! The `ferry` program: a Kubernetes cluster on this machine from one command.
//!
//! `cli` says what can be typed; `up`, `status` and `down` do it; `run` is the cluster itself. The other modules each
//! own one thing that a cluster needs: certificates, kubeconfig, container runtime, network. `kube_apiserver` is the
//! program under that component's name.

mod apply_object;
mod arguments;
mod atomic;
mod bootstrap_token;
mod build_info;
mod caller;
mod certificate_renewal;
mod cli;
mod cluster_network;
mod component_command;
mod component_serving;
mod containerd;
mod down;
mod flags;
mod image_commands;
mod instance;
mod join;
mod join_target;
mod kube_apiserver;
mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod kubeconfig;
#[path = "kubelet/mod.rs"]
mod kubelet_command;
mod local_path;
mod log;
mod metrics_api;
mod network;
mod node_commands;
mod node_components;
mod node_readiness;
mod options;
mod own_runtime;
mod pidfile;
mod pki;
mod preflight;
mod run;
mod runtime_check;
mod screen;
mod self_signed;
mod shutdown;
mod state;
mod status;
mod steps;
mod storage;
mod store_commands;
mod token_commands;
mod up;
mod user_error;

use std::process::ExitCode;

/// Most of what the API server does is to make small things and forget them: the C library's allocator takes a fifth of its
/// time for that. How soon this one gives memory back is said where it is built, in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main()
}
