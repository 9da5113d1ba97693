//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: call the HTTPS webhooks of webhook configurations.
//!
//! Configurations are parsed once per change. Mutating webhooks are called one after the other, ordered by the name of
//! their configuration; when one changes the object, earlier ones with `reinvocationPolicy: IfNeeded` are called again.
//! Validating webhooks are called concurrently. Webhooks are not called for webhook configurations and admission
//! policies.

pub mod accessor;
mod admission_review;
mod dispatcher;
mod mutating;
mod validating;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use api::Value;
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};
use authz::Authorizers;

use self::{accessor::WebhookAccessor, admission_review::WebhookResponse, dispatcher::WebhookCallError};
use super::{
    AdmissionAttributes, AdmissionMetrics, AdmissionStep, Operation, PluginDescriptor, PluginError, PluginInit,
    ResourceRule, matching::Invocation,
};

const GROUP: &str = "admissionregistration.k8s.io";
/// Resources that are exempt from webhooks, so that a faulty configuration can always be repaired.
const EXEMPT_RESOURCES: &[&str] = &[
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

pub const MUTATING_ADMISSION_WEBHOOK: PluginDescriptor = PluginDescriptor {
    name: "MutatingAdmissionWebhook",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(Operation::ALL)],
    construct: |init| {
        Ok(Box::new(mutating::MutatingWebhook(WebhookSource::new(init, "mutatingwebhookconfigurations")?)))
    },
};

pub const VALIDATING_ADMISSION_WEBHOOK: PluginDescriptor = PluginDescriptor {
    name: "ValidatingAdmissionWebhook",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(Operation::ALL)],
    construct: |init| {
        Ok(Box::new(validating::ValidatingWebhook(WebhookSource::new(init, "validatingwebhookconfigurations")?)))
    },
};

/// Whether a request targets a resource that is exempt from webhooks.
pub fn is_exempt(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.resource().group == GROUP && EXEMPT_RESOURCES.contains(&attributes.resource().name)
}

/// The webhooks of all configurations of one kind.
struct WebhookSource {
    index: CacheIndex<WebhookIndex>,
    authorizers: Arc<Authorizers>,
    metrics: Arc<AdmissionMetrics>,
}

impl WebhookSource {
    fn new(init: &PluginInit<'_>, resource: &str) -> Result<Self, PluginError> {
        let resource = loopback::find_resource(GROUP, "v1", resource)?;
        let index = CacheIndex::new(init.cache, &[resource], WebhookIndex::default())?;
        Ok(Self { index, authorizers: init.authorizers.clone(), metrics: init.metrics.clone() })
    }

    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.index.read(|webhooks| !webhooks.all.is_empty()) && !is_exempt(attributes)
    }

    /// Calls a webhook and records its latency.
    async fn call_webhook(
        &self,
        webhook: &WebhookAccessor,
        invocation: Invocation,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<WebhookResponse, WebhookCallError> {
        let began = Instant::now();
        let response = webhook.call(invocation, attributes, object, mutating).await;
        let kind = if mutating { "admit" } else { "validating" };
        let step = AdmissionStep { operation: attributes.operation.name(), kind };
        let rejected = match &response {
            Ok(_) => false,
            Err(WebhookCallError::Calling(_)) => !webhook.ignores_failure,
            Err(WebhookCallError::Rejection(_)) => true,
        };
        self.metrics.observe_webhook(&webhook.name, step, rejected, began);
        response
    }

    /// Returns all webhooks in call order.
    fn webhooks(&self) -> Arc<Vec<Arc<WebhookAccessor>>> {
        self.index.read(|webhooks| webhooks.all.clone())
    }
}

/// Webhooks by the name of their configuration.
#[derive(Default)]
struct WebhookIndex {
    configurations: BTreeMap<String, Vec<Arc<WebhookAccessor>>>,
    all: Arc<Vec<Arc<WebhookAccessor>>>,
}

impl Indexer for WebhookIndex {
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
        self.configurations.insert(key.name.to_owned(), accessor::parse_webhooks(object));
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        self.configurations.remove(key.name);
    }

    fn clear(&mut self) {
        self.configurations.clear();
    }

    fn rebuild(&mut self) {
        self.all = Arc::new(self.configurations.values().flatten().cloned().collect());
    }
}
