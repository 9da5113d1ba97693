//! `ferry node`: drains and removes nodes, with kubectl's own commands.

use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::{
    arguments::{NodeArguments, NodeCommands},
    instance::ClusterInstance,
    user_error::user_error,
};

/// Runs a subcommand.
pub fn run_node_command(arguments: NodeArguments) -> anyhow::Result<ExitCode> {
    let instance = ClusterInstance::at(&arguments.data_dir).context("--data-dir")?;
    if !instance.admin_kubeconfig().exists() {
        return Err(user_error(
            format!("{} has no control plane", instance.data().display()),
            "Run this on the node where `ferry up` runs, or name its directory with --data-dir.",
        ));
    }
    match &arguments.command {
        NodeCommands::Drain { node } => drain_node(&instance, node)?,
        NodeCommands::Remove { node, force } => {
            if !force {
                drain_node(&instance, node)?;
            }
            run_kubectl(&instance, &["delete", "node", node])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn drain_node(instance: &ClusterInstance, node: &str) -> anyhow::Result<()> {
    run_kubectl(instance, &["drain", node, "--ignore-daemonsets", "--delete-emptydir-data"])
}

fn run_kubectl(instance: &ClusterInstance, arguments: &[&str]) -> anyhow::Result<()> {
    let kubeconfig = instance.admin_kubeconfig().display().to_string();
    let all: Vec<String> = ["--kubeconfig", &kubeconfig].iter().chain(arguments).map(|&text| text.to_owned()).collect();
    match kubectl::run_command(&all) {
        0 => Ok(()),
        code => bail!("kubectl {} failed (exit code {code})", arguments.join(" ")),
    }
}
