//! The scheduler alone, under upstream's name and with upstream's flags.
//!
//! It schedules for any Kubernetes API server until SIGTERM or SIGINT, as the leader of its election.

mod configz;
mod options;

use std::process::ExitCode;

use anyhow::Context;
use client::LeaderElector;

use crate::{
    component_command::{ComponentCommand, start_logging},
    component_serving::ComponentServingOptions,
    shutdown::ComponentSet,
};
use options::KubeSchedulerOptions;

const FLAGS: &str = include_str!("flags.txt");
const COMMAND: ComponentCommand = ComponentCommand {
    name: "kube-scheduler",
    about: "The scheduler of Kubernetes: assigns pods to nodes, by what pods need and nodes have.",
    flags: FLAGS,
};

/// Schedules until it is asked to end.
pub fn run_command(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    COMMAND.run(arguments, |given| {
        let options = KubeSchedulerOptions::from_flags(given)?;
        if let Some(file) = given.text("write-config-to") {
            let text = formats::yaml::write_document(&configz::render_file(&options.scheduler.configuration));
            return std::fs::write(&file, text).with_context(|| format!("--write-config-to {file}"));
        }
        let mut serving = ComponentServingOptions::from_flags(given)?;
        serving.metrics = || client::metrics::render_component_metrics() + &scheduler::render_metrics();
        start_logging(given)?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run_until_signal(options, serving))
    })
}

async fn run_until_signal(options: KubeSchedulerOptions, serving: ComponentServingOptions) -> anyhow::Result<()> {
    let mut components = ComponentSet::new()?;
    let outcome = match start(options, serving, &mut components).await {
        Ok(()) => components.wait_for_shutdown().await,
        Err(error) => Err(error),
    };
    components.stop_all().await;
    outcome
}

async fn start(
    options: KubeSchedulerOptions,
    mut serving: ComponentServingOptions,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    let (kubeconfig, master) = (options.kubeconfig.as_deref(), options.master.as_deref());
    let clients = client::transport::component_clients(kubeconfig, master, COMMAND.name)
        .await
        .context("cannot connect to the API server")?;
    let client = clients.authenticated;
    let document = configz::render_configz(&options.scheduler.configuration);
    let elector = options.leader_election.map(|config| LeaderElector::new(client.clone(), COMMAND.name, config));
    serving.leader_election = elector.as_ref().map(LeaderElector::health);
    serving.start(COMMAND.name, client.clone(), document, components).await?;
    let client = elector.as_ref().map_or(client.clone(), |elector| elector.fence().guard(client));
    components.start("scheduler", |shutdown| async move {
        let lead = move |term| {
            let run = scheduler::run_scheduler(client.clone(), options.scheduler.clone(), term);
            async move {
                if let Err(error) = run.await {
                    tracing::error!(%error, "scheduler: invalid configuration");
                }
            }
        };
        match elector {
            Some(elector) => elector.run(shutdown, lead).await,
            None => lead(shutdown).await,
        }
        Ok(())
    });
    Ok(())
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
        assert!(table.flags().iter().filter(|flag| flag.state == FlagStatus::Used).count() > 30);
        assert!(table.help(COMMAND.name, COMMAND.about).contains("--policy-config-file string"));
    }
}
