//! The validated options of `kube-controller-manager`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail, ensure};
use apiserver::IpNetwork;
use client::{LeaderElectionConfig, leader_election::new_identity};
use controllers::{
    ClusterSigningOptions, ControllerOptions, EndpointOptions, HorizontalPodAutoscalerOptions, IpRange,
    NodeIpamOptions, NodeLifecycleOptions, SigningKeyPair, VolumeOptions,
};

use crate::{
    flags::{FlagError, ParsedFlags},
    user_error::user_error,
};

/// Concurrency flags and the controllers that they are for.
const CONCURRENCY_FLAGS: [(&str, &str); 20] = [
    ("concurrent-deployment-syncs", "deployment-controller"),
    ("concurrent-device-taint-eviction-syncs", "device-taint-eviction-controller"),
    ("concurrent-resourceclaim-syncs", "resourceclaim-controller"),
    ("concurrent-statefulset-syncs", "statefulset-controller"),
    ("concurrent-daemonset-syncs", "daemonset-controller"),
    ("concurrent-endpoint-syncs", "endpoints-controller"),
    ("concurrent-service-endpoint-syncs", "endpointslice-controller"),
    ("mirroring-concurrent-service-endpoint-syncs", "endpointslice-mirroring-controller"),
    ("concurrent-ephemeralvolume-syncs", "ephemeral-volume-controller"),
    ("concurrent-gc-syncs", "garbage-collector-controller"),
    ("concurrent-horizontal-pod-autoscaler-syncs", "horizontal-pod-autoscaler-controller"),
    ("concurrent-job-syncs", "job-controller"),
    ("concurrent-cron-job-syncs", "cronjob-controller"),
    ("concurrent-namespace-syncs", "namespace-controller"),
    ("concurrent-replicaset-syncs", "replicaset-controller"),
    ("concurrent-rc-syncs", "replicationcontroller-controller"),
    ("concurrent-resource-quota-syncs", "resourcequota-controller"),
    ("concurrent-serviceaccount-token-syncs", "serviceaccount-token-controller"),
    ("concurrent-ttl-after-finished-syncs", "ttl-after-finished-controller"),
    ("concurrent-validating-admission-policy-status-syncs", "validatingadmissionpolicy-status-controller"),
];

/// Options of the controller manager process.
pub struct ControllerManagerOptions {
    /// The kubeconfig file of the API server.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL, which overrides that of the kubeconfig.
    pub master: Option<String>,
    /// Whether every controller acts as its own service account.
    pub use_service_account_credentials: bool,
    /// Leader election; `None` runs the controllers at once.
    pub leader_election: Option<LeaderElectionConfig>,
    /// Time for the controllers to end.
    pub shutdown_timeout: Duration,
    /// Options of the controllers.
    pub controllers: ControllerOptions,
}

impl ControllerManagerOptions {
    /// Checks the given flags.
    pub fn from_flags(given: &ParsedFlags<'_>) -> anyhow::Result<Self> {
        let (kubeconfig, master) = (given.text("kubeconfig").map(PathBuf::from), given.text("master"));
        if kubeconfig.is_none() && master.is_none() {
            return Err(user_error(
                "nothing says where the API server is",
                "Give --kubeconfig FILE with the API server's address and credentials.",
            ));
        }
        if let Some(provider) = given.text("cloud-provider").filter(|provider| provider != "external") {
            return Err(given.invalid("cloud-provider", &provider, "there is only external").into());
        }
        Ok(Self {
            kubeconfig,
            master,
            use_service_account_credentials: given.bool("use-service-account-credentials")?,
            leader_election: leader_election(given, "kube-controller-manager")?,
            shutdown_timeout: given.duration("controller-shutdown-timeout")?,
            controllers: controller_options(given)?,
        })
    }
}

/// The leader election that the `leader-elect` flags describe.
pub fn leader_election(given: &ParsedFlags<'_>, component: &str) -> anyhow::Result<Option<LeaderElectionConfig>> {
    if !given.bool("leader-elect")? {
        return Ok(None);
    }
    if let Some(lock) = given.text("leader-elect-resource-lock").filter(|lock| lock != "leases") {
        return Err(given.invalid("leader-elect-resource-lock", &lock, "allowed values: leases").into());
    }
    let name = given.text("leader-elect-resource-name").unwrap_or_else(|| component.to_owned());
    let mut config =
        LeaderElectionConfig::new(&name, &new_identity(&rustix::system::uname().nodename().to_string_lossy()));
    if let Some(namespace) = given.text("leader-elect-resource-namespace") {
        config.namespace = namespace;
    }
    config.lease_duration = given.duration("leader-elect-lease-duration")?;
    config.renew_deadline = given.duration("leader-elect-renew-deadline")?;
    config.retry_period = given.duration("leader-elect-retry-period")?;
    ensure!(
        config.lease_duration > config.renew_deadline,
        "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline"
    );
    ensure!(
        config.renew_deadline > config.retry_period,
        "--leader-elect-renew-deadline must be greater than --leader-elect-retry-period"
    );
    Ok(Some(config))
}

fn controller_options(given: &ParsedFlags<'_>) -> anyhow::Result<ControllerOptions> {
    let mut names = given.many("controllers");
    if names.is_empty() {
        names.push("*".into());
    }
    if !given.bool("enable-garbage-collector")? {
        names.insert(0, "-garbage-collector-controller".into());
    }
    let options = ControllerOptions {
        controllers: names,
        concurrent_syncs: CONCURRENCY_FLAGS
            .iter()
            .filter(|(flag, _)| given.is_given(flag))
            .map(|&(flag, controller)| Ok((controller, positive(given, flag)?)))
            .collect::<Result<_, FlagError>>()?,
        root_ca: file(given, "root-ca-file")?.unwrap_or_default(),
        service_account_private_key: file(given, "service-account-private-key-file")?,
        cluster_signing: cluster_signing(given)?,
        node_ipam: node_ipam(given)?,
        node_lifecycle: NodeLifecycleOptions {
            monitor_period: given.duration("node-monitor-period")?,
            monitor_grace_period: given.duration("node-monitor-grace-period")?,
            startup_grace_period: given.duration("node-startup-grace-period")?,
            eviction_rate: given.required("node-eviction-rate")?,
            secondary_eviction_rate: given.required("secondary-node-eviction-rate")?,
            unhealthy_zone_threshold: given.required("unhealthy-zone-threshold")?,
            large_cluster_size_threshold: given.required("large-cluster-size-threshold")?,
        },
        horizontal_pod_autoscaler: HorizontalPodAutoscalerOptions {
            sync_period: given.duration("horizontal-pod-autoscaler-sync-period")?,
            cpu_initialization_period: given.duration("horizontal-pod-autoscaler-cpu-initialization-period")?,
            initial_readiness_delay: given.duration("horizontal-pod-autoscaler-initial-readiness-delay")?,
            downscale_stabilization: given.duration("horizontal-pod-autoscaler-downscale-stabilization")?,
            tolerance: given.required("horizontal-pod-autoscaler-tolerance")?,
        },
        endpoints: EndpointOptions {
            endpoints_batch_period: given.duration("endpoint-updates-batch-period")?,
            slices_batch_period: given.duration("endpointslice-updates-batch-period")?,
            max_endpoints_per_slice: positive(given, "max-endpoints-per-slice")?,
            mirroring_batch_period: given.duration("mirroring-endpointslice-updates-batch-period")?,
            mirroring_max_endpoints_per_subset: positive(given, "mirroring-max-endpoints-per-subset")?,
        },
        volumes: VolumeOptions {
            binder_sync_period: given.duration("pvclaimbinder-sync-period")?,
            dynamic_provisioning: given.bool("enable-dynamic-provisioning")?,
            attach_detach_reconcile_period: match given.bool("disable-attach-detach-reconcile-sync")? {
                true => Duration::MAX,
                false => given.duration("attach-detach-reconcile-sync-period")?,
            },
            disable_force_detach: given.bool("disable-force-detach-on-timeout")?,
        },
        namespace_sync_period: given.duration("namespace-sync-period")?,
        resource_quota_sync_period: given.duration("resource-quota-sync-period")?,
        terminated_pod_gc_threshold: given.required("terminated-pod-gc-threshold")?,
        legacy_service_account_token_clean_up_period: given.duration("legacy-service-account-token-clean-up-period")?,
    };
    if let Some(unknown) = controllers::unknown_controller(&options.controllers) {
        bail!("{unknown:?} is not in the list of known controllers");
    }
    Ok(options)
}

fn positive(given: &ParsedFlags<'_>, name: &str) -> Result<usize, FlagError> {
    let value = given.required(name)?;
    if value == 0 { Err(given.invalid(name, "0", "it must be greater than 0")) } else { Ok(value) }
}

/// Reads the file that a flag names.
fn file(given: &ParsedFlags<'_>, flag: &str) -> anyhow::Result<Option<String>> {
    let Some(path) = given.text(flag) else { return Ok(None) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("--{flag} {path}"))?;
    Ok(Some(text))
}

fn cluster_signing(given: &ParsedFlags<'_>) -> anyhow::Result<ClusterSigningOptions> {
    let pair = |prefix: &str| -> anyhow::Result<Option<SigningKeyPair>> {
        let (certificate, key) = (format!("{prefix}-cert-file"), format!("{prefix}-key-file"));
        match (given.text(&certificate), given.text(&key)) {
            (Some(certificate), Some(key)) => {
                Ok(Some(SigningKeyPair { certificate: certificate.into(), key: key.into() }))
            }
            (None, None) => Ok(None),
            _ => bail!("--{certificate} and --{key} belong together: give both or neither"),
        }
    };
    let specific = [
        pair("cluster-signing-kubelet-serving")?,
        pair("cluster-signing-kubelet-client")?,
        pair("cluster-signing-kube-apiserver-client")?,
        pair("cluster-signing-legacy-unknown")?,
    ];
    let duration = given.duration("cluster-signing-duration")?;
    if let Some(all) = pair("cluster-signing")? {
        ensure!(
            specific.iter().all(Option::is_none),
            "--cluster-signing-cert-file and the files of single signers exclude each other"
        );
        return Ok(ClusterSigningOptions { duration, ..Default::default() }.with_key_pair(&all));
    }
    let [kubelet_serving, kubelet_client, kube_apiserver_client, legacy_unknown] = specific;
    Ok(ClusterSigningOptions { duration, kubelet_serving, kubelet_client, kube_apiserver_client, legacy_unknown })
}

fn node_ipam(given: &ParsedFlags<'_>) -> anyhow::Result<NodeIpamOptions> {
    if let Some(kind) = given.text("cidr-allocator-type").filter(|kind| kind != "RangeAllocator") {
        return Err(given.invalid("cidr-allocator-type", &kind, "there is only RangeAllocator").into());
    }
    let cluster_cidrs = ranges(given, "cluster-cidr")?;
    let allocate_node_cidrs = given.bool("allocate-node-cidrs")?;
    ensure!(!allocate_node_cidrs || !cluster_cidrs.is_empty(), "--allocate-node-cidrs needs --cluster-cidr");
    let size: Option<u8> = given.value("node-cidr-mask-size")?.filter(|size| *size != 0);
    let of_family = |name: &str, default: u8| -> Result<u8, FlagError> {
        Ok(given.value(name)?.filter(|size| *size != 0).or(size).unwrap_or(default))
    };
    Ok(NodeIpamOptions {
        allocate_node_cidrs,
        cluster_cidrs,
        service_cidrs: ranges(given, "service-cluster-ip-range")?,
        mask_size_ipv4: of_family("node-cidr-mask-size-ipv4", 24)?,
        mask_size_ipv6: of_family("node-cidr-mask-size-ipv6", 64)?,
    })
}

/// The address ranges of a flag, separated by commas.
fn ranges(given: &ParsedFlags<'_>, flag: &str) -> anyhow::Result<Vec<IpRange>> {
    let text = given.text(flag).unwrap_or_default();
    let parse = |range: &str| -> anyhow::Result<IpRange> {
        let invalid = || given.invalid(flag, range, "it is not a CIDR such as 10.244.0.0/16");
        let range = range.trim();
        range.parse::<IpNetwork>().map_err(|_| invalid())?;
        let (address, length) = range.split_once('/').ok_or_else(invalid)?;
        let (address, length) = (address.parse().map_err(|_| invalid())?, length.parse().map_err(|_| invalid())?);
        Ok(IpRange { address, prefix_length: length })
    };
    text.split(',').filter(|range| !range.is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::FlagTable;

    fn check(arguments: &[&str]) -> Result<ControllerManagerOptions, String> {
        let table = FlagTable::parse(super::super::FLAGS);
        let arguments = ["--kubeconfig", "k"].iter().chain(arguments).map(|text| (*text).to_owned());
        let given = table.read(arguments).map_err(|error| error.to_string())?;
        ControllerManagerOptions::from_flags(&given).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_options() {
        let options = check(&[
            "--concurrent-deployment-syncs=9",
            "--cluster-cidr=10.244.0.0/16,fd00::/48",
            "--node-cidr-mask-size-ipv6=80",
            "--leader-elect=false",
            "--node-monitor-grace-period=8s",
        ])
        .unwrap();
        assert!(options.leader_election.is_none());
        assert_eq!(options.controllers.concurrent_syncs.get("deployment-controller"), Some(&9));
        let ipam = options.controllers.node_ipam;
        assert_eq!(ipam.cluster_cidrs[0], IpRange { address: "10.244.0.0".parse().unwrap(), prefix_length: 16 });
        assert_eq!((ipam.cluster_cidrs[1].prefix_length, ipam.mask_size_ipv4, ipam.mask_size_ipv6), (48, 24, 80));
        assert_eq!(options.controllers.node_lifecycle.monitor_grace_period, Duration::from_secs(8));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let error = |arguments: &[&str]| check(arguments).err().unwrap_or_default();
        assert!(error(&["--controllers=*,nothing"]).contains("\"nothing\""));
        assert!(error(&["--concurrent-job-syncs=0"]).contains("concurrent-job-syncs"));
        assert!(error(&["--cluster-cidr=10.1"]).contains("cluster-cidr"));
        assert!(error(&["--leader-elect-renew-deadline=20s"]).contains("leader-elect-lease-duration"));
        assert!(error(&["--no-such-flag"]).contains("unknown flag"));
    }
}
