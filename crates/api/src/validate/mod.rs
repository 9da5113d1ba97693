//! Validation: metadata for every object, and what is particular to a kind from the tables in `schema/rules`.
//!
//! [`create`], [`update`] and [`update_subresource`] return every fault with upstream's field paths, reasons, order and
//! wording. They never change the object. Objects are canonical by the tables; values may be anything. What the tables
//! cannot say is in a file per subject, as functions that they call by name.

mod access;
mod admission;
mod at;
mod certificates;
mod config;
mod cron;
mod custom_formats;
mod custom_resource;
mod custom_schema;
mod custom_value;
mod device;
mod endpoints;
mod error;
mod flow_control;
mod internal;
mod job;
mod metadata;
pub mod names;
mod net;
mod network;
mod node;
mod pem;
mod pod;
mod pod_certificate;
mod prelude;
mod quota;
pub(crate) mod render;
mod resource_name;
mod resource_slice;
mod restore;
mod rules;
mod scheduling;
mod selector;
mod service;
mod service_addresses;
mod storage;
mod tables;
mod volume;
mod volume_claim;
mod warnings;
mod workload;
mod x509;

pub use error::{Bad, Fault, FieldError};

use at::At;
use jiff::Timestamp;
use metadata::Scheme;

use crate::{
    Value,
    schema::{ObjectWrite, Resource},
};

/// Faults, in the order in which they are found.
type Errors = Vec<FieldError>;

/// The faults of a new object.
pub fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(custom) = &resource.custom {
        metadata::object(&At::top(object), rules::scheme(resource), &mut errors);
        errors.extend(custom.validate_write(ObjectWrite { object, old: None, subresource: "" }));
        return errors;
    }
    let (kind, at) = (rules::kind(resource), At::top(object));
    match kind {
        Some(kind) => kind.check(resource, &at, &mut errors),
        None => metadata::object(&at, rules::scheme(resource), &mut errors),
    }
    // What a kind lets pass still has a name that can stand in a path.
    if errors.is_empty() && kind.is_none_or(|kind| kind.stored) {
        let any = Scheme { name: names::path_segment, known_finalizers: false, ..rules::scheme(resource) };
        metadata::object(&at, any, &mut errors);
    }
    errors
}

/// The faults of a changed object.
pub fn update(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = At::changed(object, old);
    metadata::update(&at, false, &mut errors);
    if let Some(custom) = &resource.custom {
        errors.extend(custom.validate_write(ObjectWrite { object, old: Some(old), subresource: "" }));
        return errors;
    }
    match rules::kind(resource) {
        Some(kind) => kind.check(resource, &at, &mut errors),
        None => metadata::update(&at, rules::scheme(resource).known_finalizers, &mut errors),
    }
    errors
}

/// The faults of the metadata of an object within another; a name is not needed.
pub fn embedded_metadata(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut named = object.clone();
    if crate::meta::name(object).is_empty() {
        crate::meta::metadata_mut(&mut named).insert("name".into(), "fakename".into());
    }
    let scheme = Scheme { name: names::path_segment, namespaced, known_finalizers: false };
    metadata::object(&At::top(&named), scheme, &mut errors);
    errors
}

/// What is wrong with the addresses of a service, before any is handed out to it.
pub fn service_addresses(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = old.map_or_else(|| At::top(object), |old| At::changed(object, old));
    service_addresses::addresses(&at.get("spec"), &mut errors);
    errors
}

/// The faults of a change through a subresource that takes the whole object: `status`, `resize`, `ephemeralcontainers`,
/// `approval`, `finalize`. Where the tables have no rules for it, only metadata is looked at.
pub fn update_subresource(resource: &Resource, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    update_subresource_at(resource, subresource, object, old, None)
}

/// As [`update_subresource`], with what the clock says: some times must be near to now.
pub fn update_subresource_at(
    resource: &Resource,
    subresource: &str,
    object: &Value,
    old: &Value,
    now: Option<Timestamp>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = At::changed_at(object, old, now.map(Timestamp::as_second));
    metadata::update(&at, false, &mut errors);
    if let Some(custom) = &resource.custom {
        errors.extend(custom.validate_write(ObjectWrite { object, old: Some(old), subresource }));
        return errors;
    }
    let known = rules::kind(resource).is_some_and(|kind| kind.check_part(subresource, resource, &at, &mut errors));
    if !known {
        metadata::update(&at, rules::scheme(resource).known_finalizers, &mut errors);
    }
    errors
}

/// What is worth telling whoever writes an object, new or in place of an old one, that is accepted.
pub fn warnings(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut told = Vec::new();
    if resource.custom.is_some() {
        return metadata::finalizer_warnings(object, old);
    }
    if let Some(kind) = rules::kind(resource) {
        let at = old.map_or(At::top(object), |old| At::changed(object, old));
        kind.check_part("warnings", resource, &at, &mut told);
    }
    told.iter().map(ToString::to_string).collect()
}
