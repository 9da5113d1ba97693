//! Admission control: a chain of plug-ins that mutates and validates write requests.
//!
//! [`Admission`] holds the plug-ins in upstream's order. The registry calls [`Admission::admit`] with a decoded and
//! defaulted object before its strategy prepares it: plug-ins may change it. It calls [`Admission::validate`] once the
//! object is valid and about to be stored, when it can no longer change. The first rejection ends the request. Updates
//! are admitted again on every write attempt; deletions after their preconditions hold.

mod attributes;
mod certificate_request;
mod config;
mod deferred_authorizer;
mod matching;
mod namespace_index;
mod options;
mod plugins;
mod pod;
mod policies;
mod reinvocation;
mod subject;
mod times;
pub mod usage;
mod versioned_attributes;
mod webhooks;

use std::{sync::Arc, time::Instant};

use api::{Value, status::Status};
pub use apiserver_core::warnings::Warnings;
use async_trait::async_trait;
pub use attributes::{AdmissionAttributes, Operation};
pub use config::{AdmissionSettings, PluginInit, UnknownPlugin};
use namespace_index::NamespaceIndex;
use plugins::ROWS;
pub use times::{Step, Times};

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
    const fn object(group: &'static str, name: &'static str, operations: &'static [Operation]) -> Self {
        Self { resource: (group, name), subresources: &[""], operations }
    }

    const fn everything(operations: &'static [Operation]) -> Self {
        Self { resource: ("*", "*"), subresources: &[], operations }
    }

    fn covers(&self, attributes: &AdmissionAttributes<'_>) -> bool {
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
    pub on: bool,
    /// Rules that select the requests it handles.
    pub about: &'static [ResourceRule],
    /// Constructs the plug-in from its configuration and dependencies.
    pub make: fn(&PluginInit<'_>) -> Result<Box<dyn Plugin>, String>,
}

struct EnabledPlugin {
    row: &'static PluginDescriptor,
    plugin: Box<dyn Plugin>,
}

impl EnabledPlugin {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.row.about.iter().any(|about| about.covers(attributes)) && self.plugin.handles(attributes)
    }
}

/// The admission chain: the enabled plug-ins in upstream's order.
#[derive(Clone, Default)]
pub struct Admission {
    links: Arc<Vec<EnabledPlugin>>,
    times: Arc<Times>,
}

impl Admission {
    /// Builds the chain of the plug-ins that the settings enable.
    pub fn new(settings: &AdmissionSettings, parts: &PluginInit<'_>) -> Result<Self, String> {
        let mut links = Vec::new();
        for row in ROWS.iter().filter(|row| settings.enables(row)) {
            let parts = PluginInit { config: settings.config(row.name), ..*parts };
            let plugin =
                (row.make)(&parts).map_err(|why| format!("couldn't init admission plugin {:?}: {why}", row.name))?;
            links.push(EnabledPlugin { row, plugin });
        }
        Ok(Self { links: Arc::new(links), times: parts.times.clone() })
    }

    /// The latency metrics of the chain.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Runs the mutating phase: plug-ins may change or reject the object.
    pub async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let (step, began) = (Step { operation: attributes.operation.name(), kind: "admit" }, Instant::now());
        let admitted = self.admit_all(attributes, object, step).await;
        self.times.step(step, admitted.is_err(), began);
        admitted
    }

    async fn admit_all(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        step: Step,
    ) -> Result<(), Status> {
        loop {
            for link in self.links.iter().filter(|link| link.handles(attributes)) {
                let began = Instant::now();
                let admitted = link.plugin.admit(attributes, object).await;
                self.times.plugin(link.row.name, step, admitted.is_err(), began);
                admitted?;
            }
            if !attributes.rounds.another() {
                return Ok(());
            }
        }
    }

    /// Runs the validating phase on an object that is about to be stored.
    pub async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let (step, began) = (Step { operation: attributes.operation.name(), kind: "validate" }, Instant::now());
        let valid = self.validate_all(attributes, object, step).await;
        self.times.step(step, valid.is_err(), began);
        valid
    }

    async fn validate_all(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        step: Step,
    ) -> Result<(), Status> {
        for link in self.links.iter().filter(|link| link.handles(attributes)) {
            let began = Instant::now();
            let valid = link.plugin.validate(attributes, object).await;
            self.times.plugin(link.row.name, step, valid.is_err(), began);
            valid?;
        }
        Ok(())
    }

    /// Runs both phases for a request without an object, such as a deletion.
    pub async fn allow(&self, attributes: &AdmissionAttributes<'_>) -> Result<(), Status> {
        self.admit(attributes, &mut Value::Null).await?;
        self.validate(attributes, &Value::Null).await
    }
}
