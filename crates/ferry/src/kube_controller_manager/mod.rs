//! The controller manager alone, under upstream's name and with upstream's flags.
//!
//! It runs the controllers against any Kubernetes API server until SIGTERM or SIGINT, as the leader of its election.

mod configz;
mod options;

use std::{process::ExitCode, sync::Arc};

use anyhow::Context;
use client::{LeaderElector, SharedInformerFactory, service_account_client::service_account_client};
use kube::Client;

use crate::{
    component_command::{ComponentCommand, start_logging},
    component_serving::ComponentServingOptions,
    shutdown::ComponentSet,
};
use options::ControllerManagerOptions;

const FLAGS: &str = include_str!("flags.txt");
const COMMAND: ComponentCommand = ComponentCommand {
    name: "kube-controller-manager",
    about:
        "The controllers of Kubernetes: each watches objects through the API server and moves the cluster towards the
state that they describe.",
    flags: FLAGS,
};

/// Runs the controllers until it is asked to end.
pub fn run_command(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    COMMAND.run(arguments, |given| {
        let options = ControllerManagerOptions::from_flags(given)?;
        let serving = ComponentServingOptions::from_flags(given)?;
        start_logging(given)?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run_until_signal(options, serving))
    })
}

async fn run_until_signal(options: ControllerManagerOptions, serving: ComponentServingOptions) -> anyhow::Result<()> {
    let mut components = ComponentSet::with_deadline(options.shutdown_timeout)?;
    let outcome = match start(options, serving, &mut components).await {
        Ok(()) => components.wait_for_shutdown().await,
        Err(error) => Err(error),
    };
    components.stop_all().await;
    outcome
}

async fn start(
    options: ControllerManagerOptions,
    mut serving: ComponentServingOptions,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    let (kubeconfig, master) = (options.kubeconfig.as_deref(), options.master.as_deref());
    let clients = client::transport::component_clients(kubeconfig, master, COMMAND.name)
        .await
        .context("cannot connect to the API server")?;
    let manager = clients.authenticated;
    let elector = elector(&manager, &options);
    serving.leader_election = elector.as_ref().map(LeaderElector::health);
    serving.start(COMMAND.name, manager.clone(), configz::render_configz(&options), components).await?;
    let client_of: controllers::ServiceAccountClients = {
        let (manager, anonymous) = (manager.clone(), clients.anonymous);
        match options.use_service_account_credentials {
            true => Arc::new(move |account| service_account_client(manager.clone(), anonymous.clone(), account)),
            false => Arc::new(move |_| manager.clone()),
        }
    };
    components.start("controllers", |shutdown| {
        let informers = SharedInformerFactory::new(manager.clone(), shutdown.clone());
        let options = options.controllers;
        let client_of: controllers::ServiceAccountClients = match elector.as_ref().map(LeaderElector::fence) {
            Some(fence) => Arc::new(move |account| fence.guard(client_of(account))),
            None => client_of,
        };
        async move {
            let lead =
                move |term| controllers::run_controllers(client_of.clone(), informers.clone(), options.clone(), term);
            match elector {
                Some(elector) => elector.run(shutdown, lead).await,
                None => lead(shutdown).await,
            }
            Ok(())
        }
    });
    Ok(())
}

fn elector(client: &Client, options: &ControllerManagerOptions) -> Option<LeaderElector> {
    let config = options.leader_election.clone()?;
    Some(LeaderElector::new(client.clone(), COMMAND.name, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{FlagStatus, FlagTable};

    #[test]
    fn the_table_is_whole() {
        let table = FlagTable::parse(FLAGS);
        let rows = FLAGS.lines().filter(|line| line.contains(": ") && !line.starts_with('#')).count();
        assert_eq!(table.flags().len(), rows);
        assert!(table.flags().iter().filter(|flag| flag.state == FlagStatus::Used).count() > 70);
        assert!(table.help(COMMAND.name, COMMAND.about).contains("--controllers strings"));
    }
}
