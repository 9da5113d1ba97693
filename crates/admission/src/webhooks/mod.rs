//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: call the HTTPS webhooks of webhook configurations.
//!
//! Configurations are parsed once per change. Mutating webhooks are called one after the other, ordered by the name of
//! their configuration; when one changes the object, earlier ones with `reinvocationPolicy: IfNeeded` are called again.
//! Validating webhooks are called concurrently. Webhooks are not called for webhook configurations and admission
//! policies.

mod call;
pub mod connect;
pub mod hook;
mod mutating;
mod review;
mod validating;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use api::Value;
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};
use authz::Authorizers;

use self::{call::Failure, hook::Hook, review::Verdict};
use super::{
    AdmissionAttributes, Operation, PluginDescriptor, PluginInit, ResourceRule, Step, Times, matching::Invocation,
};

const GROUP: &str = "admissionregistration.k8s.io";
const ALL: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
/// Resources that are exempt from webhooks, so that a faulty configuration can always be repaired.
const EXEMPT: &[&str] = &[
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// The descriptor of MutatingAdmissionWebhook.
pub const MUTATING: PluginDescriptor = PluginDescriptor {
    name: "MutatingAdmissionWebhook",
    on: true,
    about: &[ResourceRule::everything(ALL)],
    make: |parts| Ok(Box::new(mutating::Mutating(Configured::new(parts, "mutatingwebhookconfigurations")?))),
};

/// The descriptor of ValidatingAdmissionWebhook.
pub const VALIDATING: PluginDescriptor = PluginDescriptor {
    name: "ValidatingAdmissionWebhook",
    on: true,
    about: &[ResourceRule::everything(ALL)],
    make: |parts| Ok(Box::new(validating::Validating(Configured::new(parts, "validatingwebhookconfigurations")?))),
};

/// Whether a request targets a resource that is exempt from webhooks.
pub fn is_exempt(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.resource().group == GROUP && EXEMPT.contains(&attributes.resource().name)
}

/// The webhooks of all configurations of one kind.
struct Configured {
    live: CacheIndex<Hooks>,
    authorizers: Arc<Authorizers>,
    times: Arc<Times>,
}

impl Configured {
    fn new(parts: &PluginInit<'_>, resource: &str) -> Result<Self, String> {
        let resource = loopback::find_resource(GROUP, "v1", resource).map_err(|status| status.message)?;
        let live = CacheIndex::new(parts.cache, &[resource], Hooks::default()).map_err(|error| error.to_string())?;
        Ok(Self { live, authorizers: parts.authorizers.clone(), times: parts.times.clone() })
    }

    fn concerns(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.live.read(|hooks| !hooks.all.is_empty()) && !is_exempt(attributes)
    }

    /// Calls a webhook and records its latency.
    async fn call(
        &self,
        hook: &Hook,
        invocation: Invocation,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<Verdict, Failure> {
        let began = Instant::now();
        let answer = hook.ask(invocation, attributes, object, mutating).await;
        let kind = if mutating { "admit" } else { "validating" };
        let step = Step { operation: attributes.operation.name(), kind };
        let rejected = match &answer {
            Ok(_) => false,
            Err(Failure::Calling(_)) => !hook.ignores_failure,
            Err(Failure::Refused(_)) => true,
        };
        self.times.hook(&hook.name, step, rejected, began);
        answer
    }

    /// Returns all webhooks in call order.
    fn hooks(&self) -> Arc<Vec<Arc<Hook>>> {
        self.live.read(|hooks| hooks.all.clone())
    }
}

/// Webhooks by the name of their configuration.
#[derive(Default)]
struct Hooks {
    configurations: BTreeMap<String, Vec<Arc<Hook>>>,
    all: Arc<Vec<Arc<Hook>>>,
}

impl Indexer for Hooks {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        self.configurations.insert(place.name.to_owned(), hook::of(object));
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        self.configurations.remove(place.name);
    }

    fn clear(&mut self) {
        self.configurations.clear();
    }

    fn rebuild(&mut self) {
        self.all = Arc::new(self.configurations.values().flatten().cloned().collect());
    }
}
