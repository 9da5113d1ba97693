//! The command line: what can be typed, what `--help` teaches, and which module does it.

use std::{path::Path, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use crate::{
    arguments::{DownArguments, JoinArguments, NodeArguments, StatusArguments, TokenArguments, UpArguments},
    caller::CallingUser,
    down, image_commands, kube_apiserver, kube_controller_manager, kube_proxy, kube_scheduler, kubelet_command,
    node_commands, own_runtime, screen, status, store_commands, token_commands,
    up::{self, StartArguments},
};

/// Kubernetes in one binary.
///
/// `ferry up` makes this machine a Kubernetes cluster of one node: API server, controllers, scheduler and kubelet in one
/// process, with a container runtime of its own. Another runtime (CRI) can be named, or containerd installed.
#[derive(Debug, Parser)]
#[command(name = "ferry", version, after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Subcommands,
}

const EXAMPLES: &str = "\
Examples:
  sudo ferry up                       start the cluster; nothing else needs to be installed
  kubectl get nodes                   the cluster is your kubeconfig's current context
  sudo ferry token create             print the command that makes another machine a node
  sudo ferry status                   what runs, where things are, what is wrong
  sudo ferry down                     stop everything; the cluster's objects stay for the next up
  sudo ferry down --purge             stop everything and forget the cluster";

#[derive(Debug, Subcommand)]
enum Subcommands {
    Up(UpArguments),
    Join(JoinArguments),
    Token(TokenArguments),
    Node(NodeArguments),
    Status(StatusArguments),
    Down(DownArguments),
    Store(store_commands::StoreCommands),
    Image(image_commands::ImageArguments),
    ContainerRuntime(own_runtime::ContainerRuntimeArguments),
    KubeApiserver(KubeApiserverArguments),
    KubeControllerManager(KubeControllerManagerArguments),
    KubeProxy(KubeProxyArguments),
    KubeScheduler(KubeSchedulerArguments),
    Kubectl(KubectlArguments),
    Kubelet(KubeletArguments),
}

/// The API server alone, with upstream's flags; `ferry kube-apiserver --help` lists them
#[derive(Clone, Debug, Args)]
#[command(name = "kube-apiserver", disable_help_flag = true)]
pub struct KubeApiserverArguments {
    /// Upstream's flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    arguments: Vec<String>,
}

/// The controllers alone, with upstream's flags; `ferry kube-controller-manager --help` lists them
#[derive(Clone, Debug, Args)]
#[command(name = "kube-controller-manager", disable_help_flag = true)]
pub struct KubeControllerManagerArguments {
    /// Upstream's flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    arguments: Vec<String>,
}

/// The service proxy alone, with upstream's flags; `ferry kube-proxy --help` lists them
#[derive(Clone, Debug, Args)]
#[command(name = "kube-proxy", disable_help_flag = true)]
pub struct KubeProxyArguments {
    /// Upstream's flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    arguments: Vec<String>,
}

/// The scheduler alone, with upstream's flags; `ferry kube-scheduler --help` lists them
#[derive(Clone, Debug, Args)]
#[command(name = "kube-scheduler", disable_help_flag = true)]
pub struct KubeSchedulerArguments {
    /// Upstream's flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    arguments: Vec<String>,
}

/// The command line tool of Kubernetes; `ferry kubectl --help` lists its commands
#[derive(Clone, Debug, Args)]
#[command(name = "kubectl", disable_help_flag = true)]
pub struct KubectlArguments {
    /// The command and its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// The node agent alone, with upstream's flags; `ferry kubelet --help` lists them
#[derive(Clone, Debug, Args)]
#[command(name = "kubelet", disable_help_flag = true)]
pub struct KubeletArguments {
    /// Upstream's flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    arguments: Vec<String>,
}

/// Runs kubectl and turns its exit code into that of the process.
fn run_kubectl(arguments: &[String]) -> ExitCode {
    ExitCode::from(u8::try_from(kubectl::run_command(arguments)).unwrap_or(1))
}

/// Parses the arguments, does what they say, and turns the outcome into an exit code.
pub fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == runtime::LAUNCHER_NAME) {
        return runtime::run_launcher();
    }
    // Fails only if a provider is installed already, and then there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(code) = started_as_cni_plugin() {
        return code;
    }
    match started_as_component().as_deref() {
        Some("kube-apiserver") => return kube_apiserver::run_command(std::env::args().skip(1)),
        Some("kube-controller-manager") => return kube_controller_manager::run_command(std::env::args().skip(1)),
        Some("kube-proxy") => return kube_proxy::run_command(std::env::args().skip(1)),
        Some("kube-scheduler") => return kube_scheduler::run_command(std::env::args().skip(1)),
        Some("kubelet") => return kubelet_command::run_command(std::env::args().skip(1)),
        Some("kubectl") => return run_kubectl(&std::env::args().skip(1).collect::<Vec<_>>()),
        Some(component) => {
            eprintln!("ferry: started as {component}: not supported yet; run `ferry up` instead");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    let outcome = match CommandLine::parse().command {
        Subcommands::Up(arguments) => up::run_up(StartArguments::Up(arguments), CallingUser::from_environment()),
        Subcommands::Join(arguments) => up::run_up(StartArguments::Join(arguments), CallingUser::from_environment()),
        Subcommands::Token(arguments) => token_commands::run_token_command(arguments),
        Subcommands::Node(arguments) => node_commands::run_node_command(arguments),
        Subcommands::Status(arguments) => status::run_status(arguments),
        Subcommands::Down(arguments) => down::run_down(arguments),
        Subcommands::Store(arguments) => store_commands::run_store_command(arguments),
        Subcommands::Image(arguments) => image_commands::run_image_command(arguments),
        Subcommands::ContainerRuntime(arguments) => own_runtime::run_container_runtime(arguments),
        Subcommands::KubeApiserver(arguments) => return kube_apiserver::run_command(arguments.arguments),
        Subcommands::KubeControllerManager(arguments) => {
            return kube_controller_manager::run_command(arguments.arguments);
        }
        Subcommands::KubeProxy(arguments) => return kube_proxy::run_command(arguments.arguments),
        Subcommands::KubeScheduler(arguments) => return kube_scheduler::run_command(arguments.arguments),
        Subcommands::Kubelet(arguments) => return kubelet_command::run_command(arguments.arguments),
        Subcommands::Kubectl(arguments) => return run_kubectl(&arguments.arguments),
    };
    outcome.unwrap_or_else(|error| {
        screen::error(&error);
        ExitCode::FAILURE
    })
}

/// Runs the CNI plug-in under whose name this program was started.
fn started_as_cni_plugin() -> Option<ExitCode> {
    let name = std::env::args().next()?;
    let name = Path::new(&name).file_name()?.to_str()?;
    cni::run_plugin(name)
}

/// The upstream component under whose name this program was started.
fn started_as_component() -> Option<String> {
    const COMPONENTS: [&str; 7] =
        ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm", "kubectl", "kubelet"];
    let name = std::env::args().next()?;
    let name = Path::new(&name).file_name()?.to_str()?.to_owned();
    COMPONENTS.contains(&name.as_str()).then_some(name)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_wrong_pod_range_is_refused() {
        let wrong = CommandLine::try_parse_from(["ferry", "up", "--pod-cidr", "10.42.0.1/24"]).unwrap_err();
        assert!(wrong.to_string().contains("did you mean 10.42.0.0/24"), "{wrong}");
    }
}
