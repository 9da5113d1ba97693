//! `/configz`: the configuration in the form of upstream's `KubeControllerManagerConfiguration`.

use std::time::Duration;

use serde_json::{Value, json};

use super::options::ControllerManagerOptions;

/// Renders the document of `/configz`.
pub fn render_configz(options: &ControllerManagerOptions) -> Value {
    let controllers = &options.controllers;
    let election = options.leader_election.as_ref();
    let period = |duration: Option<Duration>| duration.map(go_duration).unwrap_or_default();
    let (ipam, lifecycle) = (&controllers.node_ipam, &controllers.node_lifecycle);
    let autoscaler = &controllers.horizontal_pod_autoscaler;
    let ranges = |ranges: &[controllers::IpRange]| {
        let ranges = ranges.iter().map(|range| format!("{}/{}", range.address, range.prefix_length));
        ranges.collect::<Vec<_>>().join(",")
    };
    json!({"kubecontrollermanager.config.k8s.io": {
        "Generic": {
            "Controllers": controllers.controllers,
            "LeaderElection": {
                "leaderElect": election.is_some(),
                "leaseDuration": period(election.map(|election| election.lease_duration)),
                "renewDeadline": period(election.map(|election| election.renew_deadline)),
                "retryPeriod": period(election.map(|election| election.retry_period)),
                "resourceLock": "leases",
                "resourceName": election.map(|election| election.name.clone()).unwrap_or_default(),
                "resourceNamespace": election.map(|election| election.namespace.clone()).unwrap_or_default(),
            },
        },
        "KubeCloudShared": {
            "UseServiceAccountCredentials": options.use_service_account_credentials,
            "AllocateNodeCIDRs": ipam.allocate_node_cidrs,
            "ClusterCIDR": ranges(&ipam.cluster_cidrs),
            "NodeMonitorPeriod": go_duration(lifecycle.monitor_period),
        },
        "NodeIPAMController": {
            "ServiceCIDR": ranges(&ipam.service_cidrs),
            "NodeCIDRMaskSizeIPv4": ipam.mask_size_ipv4,
            "NodeCIDRMaskSizeIPv6": ipam.mask_size_ipv6,
        },
        "NodeLifecycleController": {
            "NodeMonitorGracePeriod": go_duration(lifecycle.monitor_grace_period),
            "NodeStartupGracePeriod": go_duration(lifecycle.startup_grace_period),
            "NodeEvictionRate": lifecycle.eviction_rate,
            "SecondaryNodeEvictionRate": lifecycle.secondary_eviction_rate,
            "UnhealthyZoneThreshold": lifecycle.unhealthy_zone_threshold,
            "LargeClusterSizeThreshold": lifecycle.large_cluster_size_threshold,
        },
        "HPAController": {
            "HorizontalPodAutoscalerSyncPeriod": go_duration(autoscaler.sync_period),
            "HorizontalPodAutoscalerDownscaleStabilizationWindow": go_duration(autoscaler.downscale_stabilization),
            "HorizontalPodAutoscalerTolerance": autoscaler.tolerance,
            "HorizontalPodAutoscalerCPUInitializationPeriod": go_duration(autoscaler.cpu_initialization_period),
            "HorizontalPodAutoscalerInitialReadinessDelay": go_duration(autoscaler.initial_readiness_delay),
        },
        "NamespaceController": {"NamespaceSyncPeriod": go_duration(controllers.namespace_sync_period)},
        "ResourceQuotaController": {"ResourceQuotaSyncPeriod": go_duration(controllers.resource_quota_sync_period)},
        "PodGCController": {"TerminatedPodGCThreshold": controllers.terminated_pod_gc_threshold},
        "PersistentVolumeBinderController": {
            "PVClaimBinderSyncPeriod": go_duration(controllers.volumes.binder_sync_period),
            "VolumeConfiguration": {"EnableDynamicProvisioning": controllers.volumes.dynamic_provisioning},
        },
        "CSRSigningController": {"ClusterSigningDuration": go_duration(controllers.cluster_signing.duration)},
    }})
}

/// Formats whole seconds as Go does: `1h0m5s`.
fn go_duration(duration: Duration) -> String {
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() % 3600 / 60);
    let seconds = (duration - Duration::from_secs(hours * 3600 + minutes * 60)).as_secs_f64();
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        for (seconds, want) in [(0.0, "0s"), (1.5, "1.5s"), (300.0, "5m0s"), (43_200.0, "12h0m0s")] {
            assert_eq!(go_duration(Duration::from_secs_f64(seconds)), want);
        }
    }
}
