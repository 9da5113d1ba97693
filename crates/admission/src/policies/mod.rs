//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: rules in CEL, bound to what they are about.
//!
//! Policies and bindings are compiled once per change and kept in a view. Expressions are evaluated without waiting for
//! anything: what they ask about rights is noted, answered, and then they are evaluated again with the answers (`super::asking`).
//! Evaluation has no effects and two questions exhaust what an expression may cost, so that this ends soon. No policy decides
//! over policies.

mod mutating;
mod params;
mod source;
mod validating;

use expressions::admission::{MutatingPolicy, ValidatingPolicy};

use self::source::Source;
use super::{AdmissionAttributes, Operation, PluginDescriptor, ResourceRule};

const GROUP: &str = "admissionregistration.k8s.io";
const ALL: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

/// The row of policies that may change objects. There is nothing to change in what is deleted.
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

/// The row of policies that may only refuse.
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

/// Whether a request is about what no policy decides over: policies, and reviews that the cluster cannot do without.
fn is_exempt(attributes: &AdmissionAttributes<'_>) -> bool {
    let resource = attributes.resource();
    let policies = || resource.name.contains("admissionpolic");
    match resource.group {
        GROUP => policies(),
        "authentication.k8s.io" | "authorization.k8s.io" => resource.name.ends_with("reviews"),
        _ => false,
    }
}
