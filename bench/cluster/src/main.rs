//! Puts load on a whole cluster and says how long it took: pods that start and end, deployments.
//!
//! `bench/run` starts it against Ferry and against upstream, one after the other; it prints a line of JSON per row.

mod pods;
mod rows;
mod stored_pods;
mod watch;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Put load on a cluster
#[derive(Parser)]
struct Arguments {
    /// Kubeconfig of the cluster
    #[arg(long)]
    kubeconfig: PathBuf,
    #[command(subcommand)]
    load: ClusterLoad,
}

#[derive(Subcommand)]
enum ClusterLoad {
    /// Start pods of a present image, wait until they are Ready, end them
    Pods(pods::PodLoad),
    /// Store pods that run nowhere, until standard input ends
    StoredPods(stored_pods::StoredPodLoad),
    /// Start deployments of three, wait until they are available
    Deployment(pods::DeploymentLoad),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let file = Kubeconfig::read_from(&arguments.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    match arguments.load {
        ClusterLoad::Pods(load) => load.run(&client).await,
        ClusterLoad::StoredPods(load) => load.run(&client).await,
        ClusterLoad::Deployment(load) => load.run(&client).await,
    }
}
