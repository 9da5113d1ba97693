//! Configuration of the controllers: upstream's `KubeControllerManagerConfiguration`, with its defaults.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

/// Settings of all controllers. [`Default`] has upstream's defaults.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// `--controllers`: names to run; `*` stands for all that are on by default, `-name` turns one off.
    pub controllers: Vec<String>,
    /// `--concurrent-*-syncs` by controller name; a controller's own default applies without an entry.
    pub concurrent_syncs: BTreeMap<&'static str, usize>,
    /// The cluster's CA certificate (PEM), published as `kube-root-ca.crt` in every namespace.
    pub root_ca: String,
    /// `--service-account-private-key-file` (PEM): signs tokens of service account token Secrets.
    pub service_account_private_key: Option<String>,
    /// Signers of CertificateSigningRequests.
    pub cluster_signing: ClusterSigningOptions,
    /// Pod CIDRs of nodes.
    pub node_ipam: NodeIpamOptions,
    /// Health of nodes and eviction.
    pub node_lifecycle: NodeLifecycleOptions,
    /// HorizontalPodAutoscalers.
    pub horizontal_pod_autoscaler: HorizontalPodAutoscalerOptions,
    /// Endpoints and EndpointSlices.
    pub endpoints: EndpointOptions,
    /// PersistentVolumes and claims.
    pub volumes: VolumeOptions,
    /// `--namespace-sync-period`.
    pub namespace_sync_period: Duration,
    /// `--resource-quota-sync-period`.
    pub resource_quota_sync_period: Duration,
    /// `--terminated-pod-gc-threshold`; 0 or less keeps all terminated pods.
    pub terminated_pod_gc_threshold: i32,
    /// `--legacy-service-account-token-clean-up-period`.
    pub legacy_service_account_token_clean_up_period: Duration,
}

/// Files and validity of the certificate signers.
#[derive(Clone, Debug)]
pub struct ClusterSigningOptions {
    /// `--cluster-signing-duration`.
    pub duration: Duration,
    /// `kubernetes.io/kubelet-serving`.
    pub kubelet_serving: Option<SigningKeyPair>,
    /// `kubernetes.io/kube-apiserver-client-kubelet`.
    pub kubelet_client: Option<SigningKeyPair>,
    /// `kubernetes.io/kube-apiserver-client`.
    pub kube_apiserver_client: Option<SigningKeyPair>,
    /// `kubernetes.io/legacy-unknown`.
    pub legacy_unknown: Option<SigningKeyPair>,
}

/// A CA certificate and its key (PEM files, read again when they change).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeyPair {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Allocation of `Node.spec.podCIDRs`.
#[derive(Clone, Debug)]
pub struct NodeIpamOptions {
    /// `--allocate-node-cidrs`.
    pub allocate_node_cidrs: bool,
    /// `--cluster-cidr`: at most one range per IP family.
    pub cluster_cidrs: Vec<IpRange>,
    /// `--service-cluster-ip-range`: never given to nodes.
    pub service_cidrs: Vec<IpRange>,
    /// `--node-cidr-mask-size-ipv4`.
    pub mask_size_ipv4: u8,
    /// `--node-cidr-mask-size-ipv6`.
    pub mask_size_ipv6: u8,
}

/// An address range in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    /// The first address.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_length: u8,
}

/// Detection of unhealthy nodes.
#[derive(Clone, Debug)]
pub struct NodeLifecycleOptions {
    /// `--node-monitor-period`.
    pub monitor_period: Duration,
    /// `--node-monitor-grace-period`.
    pub monitor_grace_period: Duration,
    /// `--node-startup-grace-period`.
    pub startup_grace_period: Duration,
    /// `--node-eviction-rate`: nodes per second in a healthy zone.
    pub eviction_rate: f32,
    /// `--secondary-node-eviction-rate`: in an unhealthy zone of a large cluster.
    pub secondary_eviction_rate: f32,
    /// `--unhealthy-zone-threshold`: share of NotReady nodes.
    pub unhealthy_zone_threshold: f32,
    /// `--large-cluster-size-threshold`: number of nodes.
    pub large_cluster_size_threshold: usize,
}

/// Settings of the HPA controller.
#[derive(Clone, Debug)]
pub struct HorizontalPodAutoscalerOptions {
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub sync_period: Duration,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    pub cpu_initialization_period: Duration,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    pub initial_readiness_delay: Duration,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: Duration,
    /// `--horizontal-pod-autoscaler-tolerance`.
    pub tolerance: f64,
}

/// Settings of the endpoint controllers.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// `--endpoint-updates-batch-period`.
    pub endpoints_batch_period: Duration,
    /// `--endpointslice-updates-batch-period`.
    pub slices_batch_period: Duration,
    /// `--max-endpoints-per-slice`.
    pub max_endpoints_per_slice: usize,
    /// `--mirroring-endpointslice-updates-batch-period`.
    pub mirroring_batch_period: Duration,
    /// `--mirroring-max-endpoints-per-subset`.
    pub mirroring_max_endpoints_per_subset: usize,
}

/// Settings of the volume controllers.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// `--pvclaimbinder-sync-period`.
    pub binder_sync_period: Duration,
    /// `--enable-dynamic-provisioning`.
    pub dynamic_provisioning: bool,
    /// `--attach-detach-reconcile-sync-period`.
    pub attach_detach_reconcile_period: Duration,
    /// `--disable-force-detach-on-timeout`.
    pub disable_force_detach: bool,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            controllers: vec!["*".into()],
            concurrent_syncs: BTreeMap::new(),
            root_ca: String::new(),
            service_account_private_key: None,
            cluster_signing: ClusterSigningOptions::default(),
            node_ipam: NodeIpamOptions::default(),
            node_lifecycle: NodeLifecycleOptions::default(),
            horizontal_pod_autoscaler: HorizontalPodAutoscalerOptions::default(),
            endpoints: EndpointOptions::default(),
            volumes: VolumeOptions::default(),
            namespace_sync_period: Duration::from_secs(300),
            resource_quota_sync_period: Duration::from_secs(300),
            terminated_pod_gc_threshold: 12_500,
            legacy_service_account_token_clean_up_period: Duration::from_secs(365 * 86_400),
        }
    }
}

impl Default for ClusterSigningOptions {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(365 * 86_400),
            kubelet_serving: None,
            kubelet_client: None,
            kube_apiserver_client: None,
            legacy_unknown: None,
        }
    }
}

impl ClusterSigningOptions {
    /// Lets every signer use the same key pair.
    pub fn with_key_pair(mut self, pair: &SigningKeyPair) -> Self {
        self.kubelet_serving = Some(pair.clone());
        self.kubelet_client = Some(pair.clone());
        self.kube_apiserver_client = Some(pair.clone());
        self.legacy_unknown = Some(pair.clone());
        self
    }
}

impl Default for NodeIpamOptions {
    fn default() -> Self {
        Self {
            allocate_node_cidrs: false,
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            mask_size_ipv4: 24,
            mask_size_ipv6: 64,
        }
    }
}

impl Default for NodeLifecycleOptions {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            unhealthy_zone_threshold: 0.55,
            large_cluster_size_threshold: 50,
        }
    }
}

impl Default for HorizontalPodAutoscalerOptions {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
        }
    }
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            endpoints_batch_period: Duration::ZERO,
            slices_batch_period: Duration::ZERO,
            max_endpoints_per_slice: 100,
            mirroring_batch_period: Duration::ZERO,
            mirroring_max_endpoints_per_subset: 1000,
        }
    }
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            binder_sync_period: Duration::from_secs(15),
            dynamic_provisioning: true,
            attach_detach_reconcile_period: Duration::from_secs(60),
            disable_force_detach: false,
        }
    }
}

impl ControllerOptions {
    /// Whether `--controllers` includes a controller, as upstream's `IsControllerEnabled` decides.
    pub(crate) fn is_enabled(&self, name: &str, aliases: &[&str], on_by_default: bool) -> bool {
        let names = |entry: &str| entry == name || aliases.contains(&entry);
        for entry in &self.controllers {
            match entry.strip_prefix('-') {
                Some(disabled) if names(disabled) => return false,
                None if names(entry) => return true,
                _ => {}
            }
        }
        on_by_default && self.controllers.iter().any(|entry| entry == "*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_flag_names_what_runs() {
        let check = |flag: &str, on_by_default: bool| {
            let options =
                ControllerOptions { controllers: flag.split(',').map(str::to_owned).collect(), ..Default::default() };
            options.is_enabled("job-controller", &["job"], on_by_default)
        };
        assert!(check("*", true) && !check("*", false));
        assert!(check("job-controller", false) && check("*,job", false));
        assert!(!check("*,-job-controller", true) && !check("*,-job", true));
        assert!(!check("cronjob-controller", true));
    }
}
