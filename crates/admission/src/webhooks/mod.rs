//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: others are asked, over HTTPS, as their configurations say.
//!
//! Configurations are read once per change. Mutating webhooks are asked one after the other, in the order of their
//! configurations' names; when one changes the object, those before it that want to are asked once more. Validating ones
//! are asked all at once. A configuration never decides over configurations.

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
/// Kinds that nobody but the server decides over, so that no configuration can lock everybody out.
const EXEMPT: &[&str] = &[
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// The row of webhooks that may change objects.
pub const MUTATING: PluginDescriptor = PluginDescriptor {
    name: "MutatingAdmissionWebhook",
    on: true,
    about: &[ResourceRule::everything(ALL)],
    make: |parts| Ok(Box::new(mutating::Mutating(Configured::new(parts, "mutatingwebhookconfigurations")?))),
};

/// The row of webhooks that may only refuse them.
pub const VALIDATING: PluginDescriptor = PluginDescriptor {
    name: "ValidatingAdmissionWebhook",
    on: true,
    about: &[ResourceRule::everything(ALL)],
    make: |parts| Ok(Box::new(validating::Validating(Configured::new(parts, "validatingwebhookconfigurations")?))),
};

/// Whether a request is about admission itself.
pub fn is_exempt(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.resource().group == GROUP && EXEMPT.contains(&attributes.resource().name)
}

/// The webhooks of all configurations of a kind.
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

    /// All webhooks, in order.
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
