//! The validated options of `kube-scheduler`: flags and configuration file.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use client::{LeaderElectionConfig, leader_election::new_identity};
use scheduler::{
    SchedulerOptions,
    config::{
        LeaderElectionOptions, SchedulerConfiguration, feature_gates::SchedulerFeatures, policy::SchedulerPolicy,
    },
};
use serde_json::Value;

use crate::{flags::ParsedFlags, user_error::user_error};

/// Options of the scheduler process.
pub struct KubeSchedulerOptions {
    /// The kubeconfig file of the API server.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL, which overrides that of the kubeconfig.
    pub master: Option<String>,
    /// Leader election; `None` schedules at once.
    pub leader_election: Option<LeaderElectionConfig>,
    /// Options of the scheduler.
    pub scheduler: SchedulerOptions,
}

impl KubeSchedulerOptions {
    /// Checks the given flags and the file that they name.
    pub fn from_flags(given: &ParsedFlags<'_>) -> anyhow::Result<Self> {
        let mut configuration = match given.text("config") {
            Some(file) => {
                let configuration = SchedulerConfiguration::from_value(read_yaml(&file)?);
                configuration.with_context(|| format!("--config {file}"))?
            }
            None => by_flags(given)?,
        };
        if let Some(file) = given.text("policy-config-file") {
            let policy = SchedulerPolicy::from_value(read_yaml(&file)?);
            let applied = policy.and_then(|policy| policy.apply(&mut configuration));
            applied.with_context(|| format!("--policy-config-file {file}"))?;
        }
        let of_file = configuration.client_connection.kubeconfig.clone();
        let kubeconfig = Some(of_file).filter(|file| !file.is_empty()).or_else(|| given.text("kubeconfig"));
        let (kubeconfig, master) = (kubeconfig.map(PathBuf::from), given.text("master"));
        if kubeconfig.is_none() && master.is_none() {
            return Err(user_error(
                "nothing says where the API server is",
                "Give --kubeconfig FILE with the API server's address and credentials.",
            ));
        }
        let features = given.many("feature-gates").join(",");
        let features = SchedulerFeatures::parse(&features).context("--feature-gates")?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self {
            kubeconfig,
            master,
            leader_election: leader_election(&configuration.leader_election, &host)?,
            scheduler: SchedulerOptions {
                configuration,
                features,
                max_in_unschedulable: given.duration("pod-max-in-unschedulable-pods-duration")?,
                host,
            },
        })
    }
}

fn read_yaml(file: &str) -> anyhow::Result<Value> {
    let bytes = fs::read(file).with_context(|| file.to_owned())?;
    Ok(formats::yaml::parse(&bytes).with_context(|| file.to_owned())?.value)
}

/// The configuration without a file: the defaults, with the leader election of the flags.
fn by_flags(given: &ParsedFlags<'_>) -> anyhow::Result<SchedulerConfiguration> {
    let text = |name: &str| given.text(name).unwrap_or_default();
    let mut configuration = SchedulerConfiguration::default();
    configuration.leader_election = LeaderElectionOptions {
        leader_elect: given.bool("leader-elect")?,
        lease_duration: text("leader-elect-lease-duration"),
        renew_deadline: text("leader-elect-renew-deadline"),
        retry_period: text("leader-elect-retry-period"),
        resource_lock: text("leader-elect-resource-lock"),
        resource_name: text("leader-elect-resource-name"),
        resource_namespace: text("leader-elect-resource-namespace"),
    };
    Ok(configuration)
}

fn leader_election(options: &LeaderElectionOptions, host: &str) -> anyhow::Result<Option<LeaderElectionConfig>> {
    if !options.leader_elect {
        return Ok(None);
    }
    ensure!(options.resource_lock == "leases", "resourceLock value must be \"leases\"");
    let duration = |text: &str, field: &str| {
        let nanos = api::duration::parse(text).and_then(|nanos| u64::try_from(nanos).ok());
        let nanos = nanos.filter(|nanos| *nanos > 0);
        nanos.map(Duration::from_nanos).with_context(|| format!("leaderElection.{field}: must be greater than zero"))
    };
    let mut config = LeaderElectionConfig::new(&options.resource_name, &new_identity(host));
    config.namespace.clone_from(&options.resource_namespace);
    config.lease_duration = duration(&options.lease_duration, "leaseDuration")?;
    config.renew_deadline = duration(&options.renew_deadline, "renewDeadline")?;
    config.retry_period = duration(&options.retry_period, "retryPeriod")?;
    ensure!(config.lease_duration > config.renew_deadline, "LeaseDuration must be greater than RenewDeadline");
    ensure!(config.renew_deadline > config.retry_period, "RenewDeadline must be greater than RetryPeriod");
    Ok(Some(config))
}
