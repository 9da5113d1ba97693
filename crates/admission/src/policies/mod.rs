//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: CEL policies, applied through their bindings.
//!
//! Policies and bindings are compiled once per change and kept in an index. Evaluation is synchronous: authorization
//! checks are recorded, resolved, and the expression is evaluated again with the decisions
//! (`crate::deferred_authorizer`). Evaluation has no side effects, and two checks exhaust the cost limit of an
//! expression, so that this terminates soon. Policies do not apply to policies and bindings.

mod mutating;
mod params;
mod policy_source;
mod validating;

use expressions::admission::{MutatingPolicy, ValidatingPolicy};

use self::policy_source::PolicySource;
use super::{AdmissionAttributes, Operation, PluginDescriptor, ResourceRule};

const GROUP: &str = "admissionregistration.k8s.io";

/// The descriptor of MutatingAdmissionPolicy. Deletions have no object to mutate.
pub const MUTATING_ADMISSION_POLICY: PluginDescriptor = PluginDescriptor {
    name: "MutatingAdmissionPolicy",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(&[Operation::Create, Operation::Update, Operation::Connect])],
    construct: |init| {
        let resources = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
        let policies = PolicySource::new(init, resources, MutatingPolicy::compile)?;
        Ok(Box::new(mutating::MutatingAdmissionPolicy { policies, authorizers: init.authorizers.clone() }))
    },
};

pub const VALIDATING_ADMISSION_POLICY: PluginDescriptor = PluginDescriptor {
    name: "ValidatingAdmissionPolicy",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(Operation::ALL)],
    construct: |init| {
        let resources = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        let policies = PolicySource::new(init, resources, ValidatingPolicy::compile)?;
        Ok(Box::new(validating::ValidatingAdmissionPolicy { policies, authorizers: init.authorizers.clone() }))
    },
};

/// Whether a request is exempt from policies: policies, bindings, and the access and token reviews of the cluster.
fn is_exempt(attributes: &AdmissionAttributes<'_>) -> bool {
    let resource = attributes.resource();
    let policies = || resource.name.contains("admissionpolic");
    match resource.group {
        GROUP => policies(),
        "authentication.k8s.io" | "authorization.k8s.io" => resource.name.ends_with("reviews"),
        _ => false,
    }
}
