//! `/configz` and `--write-config-to`: the configuration as upstream shows it.

use scheduler::config::SchedulerConfiguration;
use serde_json::{Value, json};

/// Renders the document of `/configz`.
pub fn render_configz(configuration: &SchedulerConfiguration) -> Value {
    let election = &configuration.leader_election;
    json!({"componentconfig": {
        "Parallelism": configuration.parallelism,
        "LeaderElection": {
            "LeaderElect": election.leader_elect,
            "LeaseDuration": election.lease_duration,
            "RenewDeadline": election.renew_deadline,
            "RetryPeriod": election.retry_period,
            "ResourceLock": election.resource_lock,
            "ResourceName": election.resource_name,
            "ResourceNamespace": election.resource_namespace,
        },
        "ClientConnection": {
            "Kubeconfig": configuration.client_connection.kubeconfig,
            "ContentType": configuration.client_connection.content_type,
            "QPS": configuration.client_connection.qps,
            "Burst": configuration.client_connection.burst,
        },
        "EnableProfiling": configuration.enable_profiling,
        "EnableContentionProfiling": configuration.enable_contention_profiling,
        "PercentageOfNodesToScore": configuration.percentage_of_nodes_to_score.unwrap_or(0),
        "PodInitialBackoffSeconds": configuration.pod_initial_backoff_seconds,
        "PodMaxBackoffSeconds": configuration.pod_max_backoff_seconds,
        "Profiles": configuration.profiles.iter().map(|profile| {
            let enabled: Vec<Value> = profile.plugins.merged_defaults().iter()
                .map(|plugin| json!({"Name": plugin.name, "Weight": plugin.weight})).collect();
            json!({
                "SchedulerName": profile.name(),
                "PercentageOfNodesToScore": profile.percentage_of_nodes_to_score,
                "Plugins": {"MultiPoint": {"Enabled": enabled}},
            })
        }).collect::<Vec<_>>(),
        "DelayCacheUntilActive": configuration.delay_cache_until_active,
    }})
}

/// Renders the configuration as a file that `--config` reads.
pub fn render_file(configuration: &SchedulerConfiguration) -> Value {
    let election = &configuration.leader_election;
    json!({
        "apiVersion": scheduler::config::API_VERSION,
        "kind": "KubeSchedulerConfiguration",
        "parallelism": configuration.parallelism,
        "leaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": election.lease_duration,
            "renewDeadline": election.renew_deadline,
            "resourceLock": election.resource_lock,
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
            "retryPeriod": election.retry_period,
        },
        "percentageOfNodesToScore": configuration.percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": configuration.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": configuration.pod_max_backoff_seconds,
        "profiles": configuration.profiles.iter().map(|profile| {
            let enabled: Vec<Value> = profile.plugins.merged_defaults().iter()
                .map(|plugin| json!({"name": plugin.name, "weight": plugin.weight})).collect();
            let multi_point = json!({"enabled": enabled, "disabled": [{"name": "*"}]});
            json!({"schedulerName": profile.name(), "plugins": {"multiPoint": multi_point}})
        }).collect::<Vec<_>>(),
    })
}
