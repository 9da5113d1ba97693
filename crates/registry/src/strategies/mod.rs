//! Per-resource strategies. Every method has a default; a strategy implements only the differences.

mod admission;
mod api_service;
mod certificate_signing_request;
mod custom_resource_definition;
mod event;
mod job;
mod namespace;
mod persistent_volume;
mod pod;
mod pod_label_keys;
mod rbac;
mod service;
mod storage;
mod subresource;
mod workload;

use std::{collections::HashMap, sync::LazyLock};

use api::{Value, schema::Resource, validate::FieldError};
use apiserver_core::User;
pub use subresource::{apply_subresource_update, copy_fields};

use crate::allocate::Allocator;

/// Hooks of one resource.
pub trait Strategy: Sync {
    /// Called once for a new object of `user`, after defaults and before validation; may change it.
    fn prepare_create(&self, _object: &mut Value, _user: &User) {}

    /// Called for every change of the object itself, before validation; may change the new object.
    fn prepare_update(&self, _object: &mut Value, _current: &Value) {}

    /// Called for a new or changed object after schema validation; adds further field errors in upstream's order.
    fn validate_object(&self, _object: &Value, _current: Option<&Value>, _errors: &mut Vec<FieldError>) {}

    /// Merges the fields that the subresource may change from `object` into `current`. By default metadata and status.
    fn update_subresource(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        subresource::with_status(object, current)
    }

    /// Whether a create keeps the client's status.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Whether a change bumps the generation. By default any change outside metadata and status.
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        spec_fields(object) != spec_fields(current)
    }

    /// The grace period of a deletion in seconds; `None` if the resource has no graceful deletion.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether a failed delete precondition is reported as an update conflict.
    fn reports_update_conflict(&self) -> bool {
        false
    }

    /// Whether something besides `metadata.finalizers` delays the deletion.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Called when a deletion starts and has to wait; may change the object.
    fn begin_deletion(&self, _object: &mut Value) {}

    /// Whether the response waits until the server's own index has observed the write.
    fn awaits_index(&self) -> bool {
        false
    }

    /// The escalation check of writes; `None` if the resource grants nothing.
    fn escalation_check(&self) -> Option<&dyn authz::EscalationCheck> {
        None
    }

    /// The allocator of cluster-unique values; `None` if the resource needs none.
    fn allocator(&self) -> Option<&dyn Allocator> {
        None
    }

    /// Whether objects expire some time after their last write.
    fn is_ephemeral(&self) -> bool {
        false
    }
}

/// The fields of an object besides metadata and status.
pub fn spec_fields(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status")).collect()
}

struct DefaultStrategy;
impl Strategy for DefaultStrategy {}

const STRATEGIES: &[(&str, &str, &dyn Strategy)] = &[
    ("", "pods", &pod::PodStrategy),
    ("", "namespaces", &namespace::NamespaceStrategy),
    ("", "services", &service::ServiceStrategy),
    ("", "events", &event::EventStrategy),
    ("", "persistentvolumes", &persistent_volume::PersistentVolumeStrategy),
    ("apiextensions.k8s.io", "customresourcedefinitions", &custom_resource_definition::CrdStrategy),
    ("apiregistration.k8s.io", "apiservices", &api_service::ApiServiceStrategy),
    ("scheduling.k8s.io", "priorityclasses", &workload::PriorityClassStrategy),
    ("", "nodes", &workload::NodeStrategy),
    ("", "secrets", &storage::SecretStrategy),
    ("", "persistentvolumeclaims", &storage::ClaimStrategy),
    ("apps", "deployments", &workload::DeploymentStrategy),
    ("apps", "daemonsets", &workload::DaemonSetStrategy),
    ("apps", "statefulsets", &workload::StatefulSetStrategy),
    ("batch", "jobs", &job::JobStrategy),
    ("certificates.k8s.io", "certificatesigningrequests", &certificate_signing_request::SigningRequestStrategy),
    ("rbac.authorization.k8s.io", "clusterroles", &rbac::RoleStrategy),
    ("rbac.authorization.k8s.io", "roles", &rbac::RoleStrategy),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &rbac::RoleBindingStrategy),
    ("rbac.authorization.k8s.io", "rolebindings", &rbac::RoleBindingStrategy),
    ("discovery.k8s.io", "endpointslices", &workload::EndpointSliceStrategy),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", &admission::ValidatingPolicyStrategy),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", &admission::MutatingPolicyStrategy),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", &admission::WebhookConfigurationStrategy),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &admission::WebhookConfigurationStrategy),
];

/// The strategy of a resource.
pub fn strategy_for(resource: &Resource) -> &'static dyn Strategy {
    static BY_NAME: LazyLock<HashMap<(&str, &str), &'static dyn Strategy>> =
        LazyLock::new(|| STRATEGIES.iter().map(|(group, name, strategy)| ((*group, *name), *strategy)).collect());
    BY_NAME.get(&resource.storage_resource()).copied().unwrap_or(&DefaultStrategy)
}

#[cfg(test)]
mod tests {
    use api::schema::schema;

    use super::*;

    #[test]
    fn every_strategy_belongs_to_one_stored_resource() {
        for (position, (group, name, _)) in STRATEGIES.iter().enumerate() {
            let stored = schema().resources().iter().any(|resource| resource.storage_resource() == (*group, *name));
            assert!(stored, "the schema has no resource {name}.{group}");
            let later = &STRATEGIES[position + 1..];
            assert!(later.iter().all(|(other, plural, _)| (other, plural) != (group, name)), "{name}.{group} is twice");
        }
    }
}
