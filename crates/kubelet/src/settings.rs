//! The kubelet's settings, validated: what `KubeletConfiguration` and the flags of `kubelet` say about the node.
//!
//! The defaults are upstream's.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::Taint;

use crate::{
    cpu_manager::CpuManagerSettings, credential_providers::CredentialProviderSettings,
    eviction_thresholds::EvictionSettings,
};

/// Settings of the node.
#[derive(Clone, Debug)]
pub struct KubeletSettings {
    /// The sources of static pods.
    pub static_pods: StaticPodSettings,
    /// Limits of images on disk.
    pub image_gc: ImageGcSettings,
    /// When pods are evicted.
    pub eviction: EvictionSettings,
    /// Number of pods.
    pub max_pods: i64,
    /// Number of pods for each CPU; 0 is no limit.
    pub pods_per_core: i64,
    /// Amounts set aside for the system and for Kubernetes, by resource: CPU in millicores, others in units.
    pub reserved: BTreeMap<String, i64>,
    /// Whether the kubelet creates its Node.
    pub register_node: bool,
    /// Labels of the Node beside the kubelet's own.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of a Node that the kubelet creates.
    pub register_with_taints: Vec<Taint>,
    /// `spec.providerID` of a Node that the kubelet creates.
    pub provider_id: Option<String>,
    /// Number of images in the node's status; -1 is no limit.
    pub node_status_max_images: i64,
    /// Interval of reports without a change.
    pub node_status_report_interval: Duration,
    /// Validity of the node's lease; it is renewed after a quarter of it.
    pub lease_duration: Duration,
    /// Size from which a container log is rotated.
    pub container_log_max_size: u64,
    /// Number of files that a container log keeps.
    pub container_log_max_files: usize,
    /// Credential providers.
    pub credential_providers: Vec<CredentialProviderSettings>,
    /// The directory of their programs.
    pub credential_provider_bin_dir: PathBuf,
    /// CPUs that containers have for themselves.
    pub cpu_manager: CpuManagerSettings,
    /// Number of processes of a pod; none is no limit.
    pub pod_pids_limit: Option<u64>,
    /// Sysctls that pods may set beside the safe ones; a name may end with `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Address of the health endpoint.
    pub healthz_address: Option<(IpAddr, u16)>,
    /// The resolver configuration of pods.
    pub resolv_conf: PathBuf,
    /// Whether exec, logs, and other paths for debugging are served.
    pub enable_debugging_handlers: bool,
    /// Whether `/logs` shows the system's log directory.
    pub enable_system_log_handler: bool,
    /// The configuration that `/configz` shows.
    pub configz: serde_json::Value,
    /// The flags that `/flagz` shows.
    pub flags: Vec<(String, String)>,
}

/// Sources of static pods.
#[derive(Clone, Debug)]
pub struct StaticPodSettings {
    /// A directory of manifests, or one file.
    pub path: Option<PathBuf>,
    /// A URL of a pod or a list of pods.
    pub url: Option<String>,
    /// Headers of requests to the URL.
    pub url_headers: Vec<(String, String)>,
    /// Interval between reads of the directory, beside those after changes.
    pub file_check_interval: Duration,
    /// Interval between requests to the URL.
    pub http_check_interval: Duration,
}

/// Limits of images on disk.
#[derive(Clone, Copy, Debug)]
pub struct ImageGcSettings {
    /// Usage of the file system, in percent, from which images are removed; 100 is never.
    pub high_threshold_percent: u64,
    /// Usage, in percent, down to which they are removed.
    pub low_threshold_percent: u64,
    /// Age from which an unused image may be removed.
    pub minimum_age: Duration,
    /// Time without use after which an image is removed; zero is never.
    pub maximum_age: Duration,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            static_pods: StaticPodSettings::default(),
            image_gc: ImageGcSettings::default(),
            eviction: EvictionSettings::default(),
            max_pods: 110,
            pods_per_core: 0,
            reserved: BTreeMap::new(),
            register_node: true,
            node_labels: BTreeMap::new(),
            register_with_taints: Vec::new(),
            provider_id: None,
            node_status_max_images: 50,
            node_status_report_interval: Duration::from_secs(300),
            lease_duration: Duration::from_secs(40),
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            credential_providers: Vec::new(),
            credential_provider_bin_dir: PathBuf::new(),
            cpu_manager: CpuManagerSettings::default(),
            pod_pids_limit: None,
            allowed_unsafe_sysctls: Vec::new(),
            healthz_address: None,
            resolv_conf: "/etc/resolv.conf".into(),
            enable_debugging_handlers: true,
            enable_system_log_handler: true,
            configz: serde_json::Value::Null,
            flags: Vec::new(),
        }
    }
}

impl Default for StaticPodSettings {
    fn default() -> Self {
        Self {
            path: None,
            url: None,
            url_headers: Vec::new(),
            file_check_interval: Duration::from_secs(20),
            http_check_interval: Duration::from_secs(20),
        }
    }
}

impl Default for ImageGcSettings {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            minimum_age: Duration::from_secs(120),
            maximum_age: Duration::ZERO,
        }
    }
}
