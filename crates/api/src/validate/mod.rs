//! Validation: metadata for every object, and what is particular to a type in a file of its own.
//!
//! [`create`], [`update`] and [`update_status`] return every fault with upstream's field paths, reasons, order and wording.
//! They never change the object. Objects are canonical by the tables; values may be anything.

mod admission;
mod api_service;
mod at;
mod autoscaling;
mod certificates;
mod condition;
mod config;
mod coordination;
mod cron;
mod custom_lists;
mod custom_resource;
mod custom_schema;
mod device;
mod diff;
mod endpoints;
mod error;
mod event;
mod flow_control;
mod ingress;
mod int_or_percent;
mod internal;
mod job;
mod job_policy;
mod job_status;
mod kinds;
mod metadata;
mod migration;
pub mod names;
mod namespace;
mod net;
mod network;
mod node;
mod path;
mod pem;
mod persistent_volume;
mod pod;
mod policy;
mod quota;
mod rbac;
mod render;
mod resource_name;
mod resource_slice;
mod review;
mod scheduling;
mod selector;
mod service;
mod service_addresses;
mod storage;
mod volume_claim;
mod volume_source;
mod webhook;
mod workload;
mod workload_group;
mod workload_status;

pub use error::{Bad, Fault, FieldError};

use at::At;
use kinds::{Kind, Meta};

use crate::{
    Value,
    quantity::Quantity,
    schema::{Resource, Scope},
};

/// Faults, in the order in which they are found.
type Errors = Vec<FieldError>;

/// The faults of a new object.
pub fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (kind, new) = (kinds::of(resource), At::top(object));
    if let Some(first) = kind.first {
        first(&new, &mut errors);
    }
    if !matches!(kind.meta, Meta::Generic | Meta::None) {
        metadata::object(&new, scheme(resource, kind), &mut errors);
    }
    (kind.check)(&new, None, &mut errors);
    // What a kind lets pass still has a name that can stand in a path.
    if errors.is_empty() && kind.meta != Meta::None {
        let any = metadata::Scheme { name: names::path_segment, known_finalizers: false, ..scheme(resource, kind) };
        metadata::object(&new, any, &mut errors);
    }
    errors
}

/// The faults of a changed object.
pub fn update(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (kind, new, old) = (kinds::of(resource), At::top(object), At::top(old));
    metadata::update(&new, &old, false, &mut errors);
    if let Some(first) = kind.first {
        first(&new, &mut errors);
    }
    if matches!(kind.meta, Meta::Update | Meta::Both) {
        metadata::update(&new, &old, known(resource), &mut errors);
    }
    if let Some(change) = kind.change {
        change(&new, &old, &mut errors);
    }
    if matches!(kind.meta, Meta::Both | Meta::Whole | Meta::WholeFirst) {
        metadata::object(&new, scheme(resource, kind), &mut errors);
    }
    (kind.check)(&new, Some(&old), &mut errors);
    if kind.meta == Meta::WholeFirst {
        metadata::update(&new, &old, known(resource), &mut errors);
    }
    if let Some(last) = kind.last {
        last(&new, &old, &mut errors);
    }
    errors
}

/// What is wrong with the addresses of a service, before any is handed out to it.
pub fn service_addresses(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    service_addresses::check(&at::At::top(object).get("spec"), old.map(|old| &old["spec"]), &mut errors);
    errors
}

/// The faults of an object whose status changed.
pub fn update_status(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let (kind, new, old) = (kinds::of(resource), At::top(object), At::top(old));
    part(resource, kind.status, &new, &old)
}

/// The faults of a change through a subresource that is not `status`: `resize`, `ephemeralcontainers`, `approval`,
/// `finalize`. Others have no rules of their own.
pub fn update_subresource(resource: &Resource, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (At::top(object), At::top(old));
    let mut errors = Vec::new();
    match (resource.kind, subresource) {
        (_, "status") => return update_status(resource, object, old.value),
        ("Pod", "resize") => pod::resize(&new, &old, &mut errors),
        ("Pod", "ephemeralcontainers") => pod::ephemeral(&new, &old, &mut errors),
        ("CertificateSigningRequest", "approval") => certificates::approval(&new, &old, &mut errors),
        ("Namespace", "finalize") => namespace::finalize(&new, &mut errors),
        _ => {}
    }
    errors
}

/// What the containers of a pod ask for together.
pub(crate) fn pod_total(spec: &Value, kind: &str, name: &str) -> Option<Quantity> {
    pod::resources::aggregate(&At::top(spec), kind, name)
}

fn part(resource: &Resource, check: Option<kinds::Change>, new: &At, old: &At) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::update(new, old, false, &mut errors);
    metadata::update(new, old, known(resource), &mut errors);
    if let Some(check) = check {
        check(new, old, &mut errors);
    }
    errors
}

/// Whether finalizers without a domain must be those that Kubernetes knows; groups of their own have their own.
fn known(resource: &Resource) -> bool {
    !["apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io"].contains(&resource.group)
}

fn scheme(resource: &Resource, kind: &Kind) -> metadata::Scheme {
    metadata::Scheme {
        name: kind.name,
        namespaced: resource.scope == Scope::Namespaced,
        known_finalizers: known(resource),
    }
}
