//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: CEL policies, applied through their bindings.
//!
//! Policies and bindings are compiled once per change and kept in an index. Evaluation is synchronous: authorization
//! checks are recorded, resolved, and the expression is evaluated again with the decisions
//! (`crate::deferred_authorizer`). Evaluation has no side effects, and two checks exhaust the cost limit of an
//! expression, so that this terminates soon. Policies do not apply to policies and bindings.

mod mutating;
mod params;
mod source;
mod validating;

use expressions::admission::{MutatingPolicy, ValidatingPolicy};

use self::source::Source;
use super::{AdmissionAttributes, Operation, PluginDescriptor, ResourceRule};

const GROUP: &str = "admissionregistration.k8s.io";
const ALL: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

/// The descriptor of MutatingAdmissionPolicy. Deletions have no object to mutate.
pub const MUTATING: PluginDescriptor = PluginDescriptor {
    name: "MutatingAdmissionPolicy",
    on: true,
    about: &[ResourceRule::everything(&[Operation::Create, Operation::Update, Operation::Connect])],
    make: |parts| {
        let resources = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
        let policies = Source::new(parts, resources, MutatingPolicy::compile)?;
        Ok(Box::new(mutating::Mutating { policies, authorizers: parts.authorizers.clone() }))
    },
};

/// The descriptor of ValidatingAdmissionPolicy.
pub const VALIDATING: PluginDescriptor = PluginDescriptor {
    name: "ValidatingAdmissionPolicy",
    on: true,
    about: &[ResourceRule::everything(ALL)],
    make: |parts| {
        let resources = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        let policies = Source::new(parts, resources, ValidatingPolicy::compile)?;
        Ok(Box::new(validating::Validating { policies, authorizers: parts.authorizers.clone() }))
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
