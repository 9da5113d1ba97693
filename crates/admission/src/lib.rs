//! Admission control: a chain of plug-ins that mutates and validates write requests.
//!
//! [`AdmissionChain`] holds the plug-ins in upstream's order. The registry calls [`AdmissionChain::admit`] with a
//! decoded and defaulted object before its strategy prepares it: plug-ins may change it. It calls
//! [`AdmissionChain::validate`] once the object is valid and about to be stored, when it can no longer change. The
//! first rejection ends the request. Updates are admitted again on every write attempt; deletions after their
//! preconditions hold.

mod attributes;
mod certificate_request;
mod config;
pub mod container_usage;
mod deferred_authorizer;
mod error;
mod matching;
mod metrics;
mod namespace_index;
mod plugins;
mod pod;
mod policies;
mod reinvocation;
mod request_options;
mod versioned_attributes;
mod versioned_request;
mod webhooks;

use std::{sync::Arc, time::Instant};

use api::{Value, status::Status};
pub use apiserver_core::warnings::Warnings;
use async_trait::async_trait;
pub use attributes::{AdmissionAttributes, Operation};
use authz::Authorizers;
pub use config::{AdmissionOptions, ConfigFileError, PluginFlagError};
use container_usage::ContainerUsage;
pub use error::{DenialReason, PluginError};
pub use metrics::{AdmissionMetrics, AdmissionStep};
use namespace_index::NamespaceIndex;
use plugins::PLUGINS;
use store::WatchCache;
use tracing::Instrument;

/// An admission plug-in.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Whether the plug-in handles a request. Called before `admit` and `validate`, so it must be cheap.
    fn handles(&self, _attributes: &AdmissionAttributes<'_>) -> bool {
        true
    }

    /// Mutates or rejects the object. The object of a deletion is null.
    async fn admit(&self, _attributes: &AdmissionAttributes<'_>, _object: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// Validates the object as it would be stored. The object of a deletion is null.
    async fn validate(&self, _attributes: &AdmissionAttributes<'_>, _object: &Value) -> Result<(), Status> {
        Ok(())
    }
}

/// Dependencies that plug-in constructors receive.
#[derive(Clone, Copy)]
pub struct PluginInit<'a> {
    /// The plug-in's own configuration.
    pub config: Option<&'a Value>,
    /// Default toleration seconds of the not-ready and unreachable taints.
    pub toleration_seconds: Option<(i64, i64)>,
    /// The watch cache that indexes are built on.
    pub cache: &'a Arc<WatchCache>,
    /// The authorizer chain.
    pub authorizers: &'a Arc<Authorizers>,
    /// Recorded resource usage of containers.
    pub usage: &'a Arc<ContainerUsage>,
    /// The latency metrics of the chain.
    pub metrics: &'a Arc<AdmissionMetrics>,
}

/// The resources, subresources and operations that a plug-in handles.
pub struct ResourceRule {
    /// API group and plural resource name; `*` matches any.
    pub resource: (&'static str, &'static str),
    /// Subresource names, "" being the object itself; empty matches any.
    pub subresources: &'static [&'static str],
    /// The handled operations.
    pub operations: &'static [Operation],
}

impl ResourceRule {
    const fn for_object(group: &'static str, name: &'static str, operations: &'static [Operation]) -> Self {
        Self { resource: (group, name), subresources: &[""], operations }
    }

    const fn for_all_resources(operations: &'static [Operation]) -> Self {
        Self { resource: ("*", "*"), subresources: &[], operations }
    }

    fn matches_request(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        let target = attributes.target;
        let (group, name) = self.resource;
        self.operations.contains(&attributes.operation)
            && (group == "*" || (name == target.resource.name && group == target.resource.group))
            && (self.subresources.is_empty() || self.subresources.contains(&attributes.subresource()))
    }
}

/// An entry of the plug-in table.
pub struct PluginDescriptor {
    /// Upstream's name of the plug-in.
    pub name: &'static str,
    /// Whether the plug-in is enabled by default.
    pub enabled_by_default: bool,
    /// Rules that select the requests it handles.
    pub rules: &'static [ResourceRule],
    /// Constructs the plug-in from its configuration and dependencies.
    pub construct: fn(&PluginInit<'_>) -> Result<Box<dyn Plugin>, PluginError>,
}

struct EnabledPlugin {
    descriptor: &'static PluginDescriptor,
    plugin: Box<dyn Plugin>,
}

impl EnabledPlugin {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.descriptor.rules.iter().any(|about| about.matches_request(attributes)) && self.plugin.handles(attributes)
    }
}

/// The admission chain: the enabled plug-ins in upstream's order.
#[derive(Clone, Default)]
pub struct AdmissionChain {
    plugins: Arc<Vec<EnabledPlugin>>,
    metrics: Arc<AdmissionMetrics>,
}

impl AdmissionChain {
    /// Builds the chain of the plug-ins that the settings enable.
    pub fn new(options: &AdmissionOptions, init: &PluginInit<'_>) -> Result<Self, PluginError> {
        let mut plugins = Vec::new();
        for descriptor in PLUGINS.iter().filter(|descriptor| options.is_enabled(descriptor)) {
            let init = PluginInit { config: options.plugin_config(descriptor.name), ..*init };
            let plugin = (descriptor.construct)(&init)
                .map_err(|source| PluginError::Init { name: descriptor.name, source: Box::new(source) })?;
            plugins.push(EnabledPlugin { descriptor, plugin });
        }
        Ok(Self { plugins: Arc::new(plugins), metrics: init.metrics.clone() })
    }

    /// The latency metrics of the chain.
    pub fn metrics(&self) -> &AdmissionMetrics {
        &self.metrics
    }

    /// Runs the mutating phase: plug-ins may change or reject the object.
    pub async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let (step, began) = (AdmissionStep { operation: attributes.operation.name(), kind: "admit" }, Instant::now());
        let admitted = self.admit_all(attributes, object, step);
        let admitted = admitted.instrument(tracing::debug_span!(target: "stage", "mutating admission")).await;
        self.metrics.observe_step(step, admitted.is_err(), began);
        admitted
    }

    async fn admit_all(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        step: AdmissionStep,
    ) -> Result<(), Status> {
        loop {
            for enabled in self.plugins.iter().filter(|enabled| enabled.handles(attributes)) {
                let began = Instant::now();
                let admitted = enabled.plugin.admit(attributes, object).await;
                self.metrics.observe_plugin(enabled.descriptor.name, step, admitted.is_err(), began);
                admitted?;
            }
            if !attributes.reinvocation.start_reinvocation() {
                return Ok(());
            }
        }
    }

    /// Runs the validating phase on an object that is about to be stored.
    pub async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let (step, began) =
            (AdmissionStep { operation: attributes.operation.name(), kind: "validate" }, Instant::now());
        let valid = self.validate_all(attributes, object, step);
        let valid = valid.instrument(tracing::debug_span!(target: "stage", "validating admission")).await;
        self.metrics.observe_step(step, valid.is_err(), began);
        valid
    }

    async fn validate_all(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        step: AdmissionStep,
    ) -> Result<(), Status> {
        for enabled in self.plugins.iter().filter(|enabled| enabled.handles(attributes)) {
            let began = Instant::now();
            let valid = enabled.plugin.validate(attributes, object).await;
            self.metrics.observe_plugin(enabled.descriptor.name, step, valid.is_err(), began);
            valid?;
        }
        Ok(())
    }

    /// Runs both phases for a request without an object, such as a deletion.
    pub async fn admit_without_object(&self, attributes: &AdmissionAttributes<'_>) -> Result<(), Status> {
        self.admit(attributes, &mut Value::Null).await?;
        self.validate(attributes, &Value::Null).await
    }
}
