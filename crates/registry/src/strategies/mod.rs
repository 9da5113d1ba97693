//! What is particular to a resource. Every method has a default; a strategy holds only the differences.

mod access;
mod admission;
mod api_service;
mod certificate;
mod definition;
mod event;
mod job;
mod namespace;
mod persistent_volume;
mod pod;
mod service;
mod storage;
mod subresource;
mod workload;

use std::{collections::HashMap, sync::LazyLock};

use api::{Value, schema::Resource, validate::FieldError};
use apiserver_core::User;
pub use subresource::{keep, through};

use crate::allocate::Allocator;

/// How one resource differs from the rest.
pub trait Strategy: Sync {
    /// Called once for a new object of `user`, after defaults and before validation; may change it.
    fn prepare_create(&self, _object: &mut Value, _user: &User) {}

    /// Called for every change of the object itself, before validation; may change the new object.
    fn prepare_update(&self, _object: &mut Value, _current: &Value) {}

    /// Called for a new or changed object after the tables have looked at it: adds what is wrong that they cannot see, in
    /// its place among what they found.
    fn check(&self, _object: &Value, _current: Option<&Value>, _errors: &mut Vec<FieldError>) {}

    /// The object that a change through a subresource makes: what it may change of `object`, the rest of `current`. By
    /// default metadata and status.
    fn through(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        subresource::with_status(object, current)
    }

    /// Whether the status of a new object is the client's to set.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Whether a change counts as a new generation. By default: whatever is not metadata or status.
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        specification(object) != specification(current)
    }

    /// How long a deletion waits for whoever runs the object; `None`: objects of this kind are not waited for.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether a deletion of another object than the one that is there is refused like a change of it.
    fn deletes_like_changes(&self) -> bool {
        false
    }

    /// Whether something besides finalizers keeps the object from being removed.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Called when a deletion begins and has to wait; may change the object.
    fn begin_deletion(&self, _object: &mut Value) {}

    /// Whether who writes an object is answered only when the server itself knows of it.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Who looks at what a write would grant; `None`: objects of this kind grant nothing.
    fn escalation_check(&self) -> Option<&dyn authz::EscalationCheck> {
        None
    }

    /// Who hands out what an object may have only once; `None`: it needs nothing of that kind.
    fn allocator(&self) -> Option<&dyn Allocator> {
        None
    }

    /// Whether an object goes away by itself some time after its last write.
    fn is_ephemeral(&self) -> bool {
        false
    }
}

/// Whatever of an object is not metadata or status.
pub fn specification(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status")).collect()
}

struct Plain;
impl Strategy for Plain {}

const STRATEGIES: &[(&str, &str, &dyn Strategy)] = &[
    ("", "pods", &pod::Pod),
    ("", "namespaces", &namespace::Namespace),
    ("", "services", &service::Service),
    ("", "events", &event::Event),
    ("", "persistentvolumes", &persistent_volume::PersistentVolume),
    ("apiextensions.k8s.io", "customresourcedefinitions", &definition::Definition),
    ("apiregistration.k8s.io", "apiservices", &api_service::ApiService),
    ("scheduling.k8s.io", "priorityclasses", &workload::OneGeneration),
    ("", "nodes", &workload::KeepsStatus),
    ("", "secrets", &storage::Secret),
    ("", "persistentvolumeclaims", &storage::Claim),
    ("apps", "deployments", &workload::Deployment),
    ("apps", "daemonsets", &workload::DaemonSet),
    ("batch", "jobs", &job::Job),
    ("certificates.k8s.io", "certificatesigningrequests", &certificate::SigningRequest),
    ("rbac.authorization.k8s.io", "clusterroles", &access::Role),
    ("rbac.authorization.k8s.io", "roles", &access::Role),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &access::Binding),
    ("rbac.authorization.k8s.io", "rolebindings", &access::Binding),
    ("discovery.k8s.io", "endpointslices", &workload::EndpointSlice),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", &admission::ValidatingPolicy),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", &admission::MutatingPolicy),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", &admission::Webhooks),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &admission::Webhooks),
];

/// The strategy of a resource.
pub fn of(resource: &Resource) -> &'static dyn Strategy {
    static BY_NAME: LazyLock<HashMap<(&str, &str), &'static dyn Strategy>> =
        LazyLock::new(|| STRATEGIES.iter().map(|(group, name, strategy)| ((*group, *name), *strategy)).collect());
    BY_NAME.get(&resource.storage_resource()).copied().unwrap_or(&Plain)
}
