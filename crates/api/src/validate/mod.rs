//! Validation: metadata for every object, and what is particular to a type in a file of its own.
//!
//! [`create`] and [`update`] return every fault with upstream's field paths and wording. They never change the object.

mod metadata;
pub mod names;
mod pod;
mod workload;

use std::fmt;

use crate::{Value, schema::Resource};

/// One wrong field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The path, for example `spec.containers[0].name`.
    pub field: String,
    /// What kind of fault it is, with the bad value where there is one.
    pub kind: Fault,
    /// What would be right.
    pub message: String,
}

/// The kinds of fault, as upstream names them.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Nothing is there.
    Required,
    /// The value is wrong.
    Invalid(Value),
    /// The value is not one of those allowed.
    NotSupported(Value),
    /// The value occurs twice.
    Duplicate(Value),
    /// The field must not be set, or must not change.
    Forbidden,
}

impl Fault {
    /// The reason in a `Status` cause.
    pub fn reason(&self) -> &'static str {
        match self {
            Fault::Required => "FieldValueRequired",
            Fault::Invalid(_) => "FieldValueInvalid",
            Fault::NotSupported(_) => "FieldValueNotSupported",
            Fault::Duplicate(_) => "FieldValueDuplicate",
            Fault::Forbidden => "FieldValueForbidden",
        }
    }
}

impl FieldError {
    /// A value is missing.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), kind: Fault::Required, message: message.into() }
    }

    /// A value is wrong.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, message: impl Into<String>) -> Self {
        Self { field: field.into(), kind: Fault::Invalid(value.into()), message: message.into() }
    }

    /// A value is not among the supported ones.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ");
        Self { field: field.into(), kind: Fault::NotSupported(value.into()), message: format!("supported values: {list}") }
    }

    /// A value occurs twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { field: field.into(), kind: Fault::Duplicate(value.into()), message: String::new() }
    }

    /// Something that must not be done.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), kind: Fault::Forbidden, message: message.into() }
    }

    /// The fault without the field, as in a `Status` cause.
    pub fn detail(&self) -> String {
        let head = match &self.kind {
            Fault::Required => "Required value".to_owned(),
            Fault::Invalid(value) => format!("Invalid value: {value}"),
            Fault::NotSupported(value) => format!("Unsupported value: {value}"),
            Fault::Duplicate(value) => format!("Duplicate value: {value}"),
            Fault::Forbidden => "Forbidden".to_owned(),
        };
        if self.message.is_empty() { head } else { format!("{head}: {}", self.message) }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail())
    }
}

/// What is particular to a type; `old` is there on update.
type Rule = fn(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>);

/// By type.
const RULES: &[(&str, &str, Rule)] = &[
    ("", "Pod", pod::validate),
    ("apps", "Deployment", workload::validate),
    ("apps", "ReplicaSet", workload::validate),
    ("apps", "DaemonSet", workload::validate),
    ("apps", "StatefulSet", workload::validate),
];

/// The faults of a new object.
pub fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::create(resource, object, &mut errors);
    rules(resource, object, None, &mut errors);
    errors
}

/// The faults of a changed object.
pub fn update(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::update(object, old, &mut errors);
    rules(resource, object, Some(old), &mut errors);
    errors
}

fn rules(resource: &Resource, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (_, _, rule) in RULES.iter().filter(|(group, kind, _)| *group == resource.group && *kind == resource.kind) {
        rule(object, old, errors);
    }
}
