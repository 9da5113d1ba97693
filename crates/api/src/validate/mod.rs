//! Validation: metadata of every object, and the rules of its kind from `schema/rules`.
//!
//! [`validate_create`], [`validate_update`] and [`validate_subresource_update_at`] return all errors with upstream's field paths, types, order and
//! wording. They never change the object. Objects are canonical; values may be arbitrary. Functions that the rule
//! tables call by name are in one file per subject.

mod admission;
mod certificates;
mod config_map;
mod cron;
mod custom_resource_definition;
mod device;
mod endpoints;
mod field_cursor;
mod flow_control;
mod ip_address;
mod job;
mod metadata;
mod name_formats;
pub mod names;
mod network;
mod node;
mod pem;
mod pod;
mod pod_certificate;
mod prelude;
mod quota;
mod rbac;
mod reset_fields;
mod resource_name;
mod resource_slice;
mod rule_functions;
mod rules;
mod scheduling;
mod schema_formats;
mod schema_value;
mod selector;
mod service;
mod service_addresses;
mod storage;
mod structural_schema;
mod volume;
mod volume_claim;
mod warnings;
mod workload;
mod x509;

pub use crate::field_error::{BadValue, FieldError, FieldErrorType};

use field_cursor::FieldCursor;
use jiff::Timestamp;
use metadata::MetadataRules;

use crate::{
    Value,
    schema::{ObjectWrite, Resource},
};

/// Field errors, in the order they are found.
type ErrorList = Vec<FieldError>;

/// Rule functions, which the tables call by name.
type RuleFunction = fn(&FieldCursor, &mut ErrorList);
type RuleFunctionWithArgument = fn(&FieldCursor, &str, &mut ErrorList);

/// Checks a value by a block of rules, for functions.
fn check_block(block: &str, at: &FieldCursor, e: &mut ErrorList) {
    rules::check_block(block, at, e);
}

/// Whether a value violates a block of rules.
fn violates_block(block: &str, at: &FieldCursor) -> bool {
    let mut e = Vec::new();
    check_block(block, at, &mut e);
    !e.is_empty()
}

/// Validates an object on create.
pub fn validate_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(custom) = &resource.custom_schema {
        metadata::validate_object_meta(&FieldCursor::for_create(object), rules::metadata_rules(resource), &mut errors);
        errors.extend(custom.validate_write(ObjectWrite { object, old: None, subresource: "" }));
        return errors;
    }
    let (kind, at) = (rules::kind_rules(resource), FieldCursor::for_create(object));
    match kind {
        Some(kind) => kind.check_object(resource, &at, &mut errors),
        None => metadata::validate_object_meta(&at, rules::metadata_rules(resource), &mut errors),
    }
    // The name must be a valid path segment in any case.
    if errors.is_empty() && kind.is_none_or(|kind| kind.stored) {
        let any = MetadataRules {
            name: names::check_path_segment,
            known_finalizers: false,
            ..rules::metadata_rules(resource)
        };
        metadata::validate_object_meta(&at, any, &mut errors);
    }
    errors
}

/// Validates an object on update.
pub fn validate_update(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = FieldCursor::for_update(object, old);
    metadata::validate_object_meta_update(&at, false, &mut errors);
    if let Some(custom) = &resource.custom_schema {
        errors.extend(custom.validate_write(ObjectWrite { object, old: Some(old), subresource: "" }));
        return errors;
    }
    match rules::kind_rules(resource) {
        Some(kind) => kind.check_object(resource, &at, &mut errors),
        None => {
            metadata::validate_object_meta_update(&at, rules::metadata_rules(resource).known_finalizers, &mut errors)
        }
    }
    errors
}

/// Validates the metadata of an embedded object; the name is optional.
pub fn validate_embedded_metadata(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut named = object.clone();
    if crate::meta::name(object).is_empty() {
        crate::meta::metadata_mut(&mut named).insert("name".into(), "fakename".into());
    }
    let scheme = MetadataRules { name: names::check_path_segment, namespaced, known_finalizers: false };
    metadata::validate_object_meta(&FieldCursor::for_create(&named), scheme, &mut errors);
    errors
}

/// Validates the addresses of a service before allocation.
pub fn service_addresses(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = old.map_or_else(|| FieldCursor::for_create(object), |old| FieldCursor::for_update(object, old));
    service_addresses::validate_addresses(&at.get("spec"), &mut errors);
    errors
}

/// Validates an update through a subresource that takes the whole object: `status`, `resize`, `ephemeralcontainers`,
/// `approval`, `finalize`. Without rules for it, only metadata is validated.
///
/// With the current time, some timestamps must be recent.
pub fn validate_subresource_update_at(
    resource: &Resource,
    subresource: &str,
    object: &Value,
    old: &Value,
    now: Option<Timestamp>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = FieldCursor::for_update_at(object, old, now.map(Timestamp::as_second));
    metadata::validate_object_meta_update(&at, false, &mut errors);
    if let Some(custom) = &resource.custom_schema {
        errors.extend(custom.validate_write(ObjectWrite { object, old: Some(old), subresource }));
        return errors;
    }
    let known =
        rules::kind_rules(resource).is_some_and(|kind| kind.check_subresource(subresource, resource, &at, &mut errors));
    if !known {
        metadata::validate_object_meta_update(&at, rules::metadata_rules(resource).known_finalizers, &mut errors);
    }
    errors
}

/// Returns the warnings about an accepted object, on create or update.
pub fn collect_warnings(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut told = Vec::new();
    if resource.custom_schema.is_some() {
        return metadata::finalizer_warnings(object, old);
    }
    if let Some(kind) = rules::kind_rules(resource) {
        let at = old.map_or(FieldCursor::for_create(object), |old| FieldCursor::for_update(object, old));
        kind.check_subresource("warnings", resource, &at, &mut told);
    }
    told.iter().map(ToString::to_string).collect()
}
