//! Field errors: path, type and message in upstream's wording.

use std::fmt;

use super::render;
use crate::{Value, json};

/// An error about one field, upstream's `field.Error`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The field path, for example `spec.containers[0].name`.
    pub field: String,
    /// The error type, with the bad value where there is one.
    pub kind: Fault,
    /// The detail.
    pub message: String,
}

/// The error types, as upstream's `field.ErrorType`.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A value is missing.
    Required,
    /// The value is invalid.
    Invalid(Bad),
    /// The value has the wrong type.
    TypeInvalid(Bad),
    /// The value is not supported.
    NotSupported(Bad),
    /// The value refers to a missing object.
    NotFound(Bad),
    /// The value is a duplicate.
    Duplicate(Bad),
    /// The field must not be set or changed.
    Forbidden,
    /// The value is too long; it is not rendered.
    TooLong,
    /// The list has too many elements, with their number.
    TooMany(usize),
    /// The list has too few elements, with their number.
    TooFew(usize),
    /// The check failed internally.
    Internal,
    /// A warning.
    Warning,
}

/// A bad value as rendered in the message.
#[derive(Clone, Debug, PartialEq)]
pub enum Bad {
    /// The value itself.
    Value(Value),
    /// Text rendered for it, such as upstream's internal types.
    Shown(String),
    /// Upstream omits the value.
    Omitted,
}

impl Bad {
    /// Renders a struct, or a list of structs, as upstream's type.
    pub(super) fn render_as(ty: &str, value: &Value) -> Self {
        let list = value.is_array();
        Bad::Shown(if list { render::render_internal_list(ty, value) } else { render::render_internal(ty, value) })
    }
}

impl<T: Into<Value>> From<T> for Bad {
    fn from(value: T) -> Self {
        Bad::Value(value.into())
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Value(Value::String(text)) => f.write_str(&render::quoted(text)),
            Bad::Value(Value::Number(number)) => f.write_str(&json::go_number(number)),
            Bad::Value(value) => f.write_str(&render::render_json(value)),
            Bad::Shown(text) => f.write_str(text),
            Bad::Omitted => Ok(()),
        }
    }
}

impl Fault {
    /// The reason in a `Status` cause.
    pub fn reason(&self) -> &'static str {
        match self {
            Fault::Required => "FieldValueRequired",
            Fault::Invalid(_) => "FieldValueInvalid",
            Fault::TypeInvalid(_) => "FieldValueTypeInvalid",
            Fault::NotSupported(_) => "FieldValueNotSupported",
            Fault::NotFound(_) => "FieldValueNotFound",
            Fault::Duplicate(_) => "FieldValueDuplicate",
            Fault::Forbidden => "FieldValueForbidden",
            Fault::TooLong => "FieldValueTooLong",
            Fault::TooMany(_) => "FieldValueTooMany",
            Fault::TooFew(_) => "FieldValueTooFew",
            Fault::Internal => "InternalError",
            Fault::Warning => "",
        }
    }

    /// The error type and bad value that begin a message.
    fn message_prefix(&self) -> String {
        let (words, bad) = match self {
            Fault::Required => return "Required value".to_owned(),
            Fault::Forbidden => return "Forbidden".to_owned(),
            Fault::TooLong => return "Too long".to_owned(),
            Fault::Internal => return "Internal error".to_owned(),
            Fault::Warning => return String::new(),
            Fault::TooMany(count) => return format!("Too many: {count}"),
            Fault::TooFew(count) => return format!("Too few: {count}"),
            Fault::Invalid(bad) | Fault::TypeInvalid(bad) => ("Invalid value", bad),
            Fault::NotSupported(bad) => ("Unsupported value", bad),
            Fault::NotFound(bad) => ("Not found", bad),
            Fault::Duplicate(bad) => ("Duplicate value", bad),
        };
        match bad {
            Bad::Omitted => words.to_owned(),
            bad => format!("{words}: {bad}"),
        }
    }
}

impl FieldError {
    /// Builds an error.
    pub fn new(field: impl Into<String>, kind: Fault, message: impl Into<String>) -> Self {
        Self { field: field.into(), kind, message: message.into() }
    }

    /// Builds an error about a missing value.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Required, message)
    }

    /// Builds an error about an invalid value.
    pub fn invalid(field: impl Into<String>, value: impl Into<Bad>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Invalid(value.into()), message)
    }

    /// Builds an error about an unsupported value.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Bad>, supported: &[&str]) -> Self {
        let list = supported.iter().map(|text| render::quoted(text)).collect::<Vec<_>>().join(", ");
        let message = if supported.is_empty() { list } else { format!("supported values: {list}") };
        Self::new(field, Fault::NotSupported(value.into()), message)
    }

    /// Builds an error about a duplicate value.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Bad>) -> Self {
        Self::new(field, Fault::Duplicate(value.into()), "")
    }

    /// Builds an error about a forbidden value.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Forbidden, message)
    }

    /// Formats the error without the field, as in a `Status` cause.
    pub fn error_body(&self) -> String {
        match (self.kind.message_prefix(), self.message.as_str()) {
            (head, "") => head,
            (head, message) if head.is_empty() => message.to_owned(),
            (head, message) => format!("{head}: {message}"),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Fault::Warning && self.field.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.field, self.error_body())
    }
}
