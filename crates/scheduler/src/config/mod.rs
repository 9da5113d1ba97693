//! `KubeSchedulerConfiguration`: parsed, defaulted and validated once, then passed on.

pub mod feature_gates;
pub mod plugin_args;
pub mod policy;
mod profiles;
mod validation;

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use self::feature_gates::SchedulerFeatures;
pub use self::profiles::{DEFAULT_PLUGINS, EnabledPlugin, PluginChoices, PluginSelection};

/// The API version of the configuration.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The document is of another kind or version.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Unknown {
        /// The document's kind.
        kind: String,
        /// The document's version.
        version: String,
    },
    /// The document does not have the form of its kind.
    #[error("strict decoding error: {0}")]
    Form(#[from] serde_json::Error),
    /// Values that do not fit.
    #[error("{0}")]
    Invalid(String),
}

/// The configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerConfiguration {
    api_version: String,
    kind: String,
    /// Degree of parallelism; accepted, as filters run on the scheduling thread.
    pub parallelism: i32,
    /// Leader election.
    pub leader_election: LeaderElectionOptions,
    /// The connection to the API server.
    pub client_connection: ClientConnection,
    /// Serving of profiles.
    pub enable_profiling: bool,
    /// Profiling of locks.
    pub enable_contention_profiling: bool,
    /// Percentage of the nodes after which a search ends; absent or zero adapts to the cluster's size.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Back-off after the first failure.
    pub pod_initial_backoff_seconds: i64,
    /// The greatest back-off.
    pub pod_max_backoff_seconds: i64,
    /// The profiles.
    pub profiles: Vec<SchedulerProfile>,
    /// Webhooks.
    pub extenders: Vec<ExtenderConfig>,
    /// Whether informers are started by the leader only.
    pub delay_cache_until_active: bool,
}

/// Leader election of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are those of the flags")]
pub struct LeaderElectionOptions {
    pub leader_elect: bool,
    pub lease_duration: String,
    pub renew_deadline: String,
    pub retry_period: String,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

impl Default for LeaderElectionOptions {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: "15s".into(),
            renew_deadline: "10s".into(),
            retry_period: "2s".into(),
            resource_lock: "leases".into(),
            resource_name: "kube-scheduler".into(),
            resource_namespace: "kube-system".into(),
        }
    }
}

/// The connection to the API server.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are those of the flags")]
pub struct ClientConnection {
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    pub qps: f64,
    pub burst: i32,
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self {
            kubeconfig: String::new(),
            accept_content_types: String::new(),
            content_type: "application/vnd.kubernetes.protobuf".into(),
            qps: 50.0,
            burst: 100,
        }
    }
}

/// A profile: a scheduler name with its plug-ins.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerProfile {
    /// The name; `default-scheduler` if there is one profile without a name.
    pub scheduler_name: Option<String>,
    /// Overrides the percentage of the configuration.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Plug-ins to enable and disable.
    pub plugins: PluginChoices,
    /// Arguments of plug-ins.
    pub plugin_config: Vec<PluginConfig>,
}

impl SchedulerProfile {
    /// The scheduler name.
    pub fn name(&self) -> &str {
        self.scheduler_name.as_deref().unwrap_or("")
    }

    /// Returns the arguments of a plug-in, or their defaults.
    pub fn args<T: Default + for<'de> Deserialize<'de>>(&self, plugin: &str) -> Result<T, ConfigError> {
        let config = self.plugin_config.iter().find(|config| config.name == plugin);
        let Some(Value::Object(mut args)) = config.map(|config| config.args.clone()) else { return Ok(T::default()) };
        args.remove("apiVersion");
        args.remove("kind");
        Ok(serde_json::from_value(Value::Object(args))?)
    }
}

/// Arguments of one plug-in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginConfig {
    /// The plug-in.
    pub name: String,
    /// Its arguments.
    pub args: Value,
}

/// An extender.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are upstream's")]
pub struct ExtenderConfig {
    pub url_prefix: String,
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub weight: i64,
    pub bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    pub tls_config: Option<ExtenderTlsConfig>,
    #[serde(rename = "httpTimeout")]
    timeout: String,
    pub node_cache_capable: bool,
    pub managed_resources: Vec<ManagedResource>,
    pub ignorable: bool,
}

impl ExtenderConfig {
    /// The longest time of a call.
    pub fn http_timeout(&self) -> Duration {
        let nanos = api::duration::parse(&self.timeout).and_then(|nanos| u64::try_from(nanos).ok());
        nanos.filter(|nanos| *nanos > 0).map_or(Duration::from_secs(5), Duration::from_nanos)
    }
}

/// TLS of an extender.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are upstream's")]
pub struct ExtenderTlsConfig {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

/// An extended resource that an extender manages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ManagedResource {
    /// The resource.
    pub name: String,
    /// Whether `NodeResourcesFit` leaves it to the extender.
    pub ignored_by_scheduler: bool,
}

impl Default for SchedulerConfiguration {
    fn default() -> Self {
        Self {
            api_version: API_VERSION.into(),
            kind: "KubeSchedulerConfiguration".into(),
            parallelism: 16,
            leader_election: LeaderElectionOptions::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            profiles: vec![SchedulerProfile {
                scheduler_name: Some(crate::views::pod_info::DEFAULT_SCHEDULER_NAME.into()),
                ..SchedulerProfile::default()
            }],
            extenders: Vec::new(),
            delay_cache_until_active: false,
        }
    }
}

impl SchedulerConfiguration {
    /// Reads a document, sets defaults and validates it.
    pub fn from_value(document: Value) -> Result<Self, ConfigError> {
        let text = |name: &str| document[name].as_str().unwrap_or("").to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != API_VERSION || kind != "KubeSchedulerConfiguration" {
            return Err(ConfigError::Unknown { kind, version });
        }
        let mut configuration: Self = serde_json::from_value(document)?;
        configuration.set_defaults();
        configuration.validate()?;
        Ok(configuration)
    }

    fn set_defaults(&mut self) {
        if self.profiles.is_empty() {
            self.profiles = Self::default().profiles;
        }
        if let [only] = self.profiles.as_mut_slice()
            && only.scheduler_name.is_none()
        {
            only.scheduler_name = Some(crate::views::pod_info::DEFAULT_SCHEDULER_NAME.into());
        }
    }

    /// Adds the default plug-ins that are behind feature gates to the profiles.
    pub fn add_gated_plugins(&mut self, features: &SchedulerFeatures) {
        if features.is_enabled("GangScheduling") {
            let plugins = self.profiles.iter_mut().map(|profile| &mut profile.plugins.multi_point);
            plugins.for_each(|plugins| plugins.add_default("GangScheduling"));
        }
    }

    /// Resources that extenders manage and the scheduler ignores.
    pub fn ignored_resources(&self) -> Vec<String> {
        let managed = self.extenders.iter().flat_map(|extender| &extender.managed_resources);
        managed.filter(|resource| resource.ignored_by_scheduler).map(|resource| resource.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
