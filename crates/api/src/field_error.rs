//! Field errors: path, type and message in upstream's wording.

use std::fmt;

use formats::json::{escape_html, go_quote};

use crate::{Value, json};

/// An error about one field, upstream's `field.Error`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The field path, for example `spec.containers[0].name`.
    pub field: String,
    /// The error type, with the bad value where there is one.
    pub kind: FieldErrorType,
    /// The detail.
    pub message: String,
}

/// The error types, as upstream's `field.ErrorType`.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldErrorType {
    /// A value is missing.
    Required,
    /// The value is invalid.
    Invalid(BadValue),
    /// The value has the wrong type.
    TypeInvalid(BadValue),
    /// The value is not supported.
    NotSupported(BadValue),
    /// The value refers to a missing object.
    NotFound(BadValue),
    /// The value is a duplicate.
    Duplicate(BadValue),
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
pub enum BadValue {
    /// The value itself.
    Value(Value),
    /// Text rendered for it, such as upstream's internal types.
    Rendered(String),
    /// Upstream omits the value.
    Omitted,
}

impl<T: Into<Value>> From<T> for BadValue {
    fn from(value: T) -> Self {
        BadValue::Value(value.into())
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadValue::Value(Value::String(text)) => f.write_str(&go_quote(text)),
            BadValue::Value(Value::Number(number)) => f.write_str(&json::go_number(number)),
            BadValue::Value(value) => f.write_str(&escape_html(value.to_string())),
            BadValue::Rendered(text) => f.write_str(text),
            BadValue::Omitted => Ok(()),
        }
    }
}

impl FieldErrorType {
    /// The reason in a `Status` cause.
    pub fn reason(&self) -> &'static str {
        match self {
            FieldErrorType::Required => "FieldValueRequired",
            FieldErrorType::Invalid(_) => "FieldValueInvalid",
            FieldErrorType::TypeInvalid(_) => "FieldValueTypeInvalid",
            FieldErrorType::NotSupported(_) => "FieldValueNotSupported",
            FieldErrorType::NotFound(_) => "FieldValueNotFound",
            FieldErrorType::Duplicate(_) => "FieldValueDuplicate",
            FieldErrorType::Forbidden => "FieldValueForbidden",
            FieldErrorType::TooLong => "FieldValueTooLong",
            FieldErrorType::TooMany(_) => "FieldValueTooMany",
            FieldErrorType::TooFew(_) => "FieldValueTooFew",
            FieldErrorType::Internal => "InternalError",
            FieldErrorType::Warning => "",
        }
    }

    /// The error type and bad value that begin a message.
    fn message_prefix(&self) -> String {
        let (words, bad) = match self {
            FieldErrorType::Required => return "Required value".to_owned(),
            FieldErrorType::Forbidden => return "Forbidden".to_owned(),
            FieldErrorType::TooLong => return "Too long".to_owned(),
            FieldErrorType::Internal => return "Internal error".to_owned(),
            FieldErrorType::Warning => return String::new(),
            FieldErrorType::TooMany(count) => return format!("Too many: {count}"),
            FieldErrorType::TooFew(count) => return format!("Too few: {count}"),
            FieldErrorType::Invalid(bad) | FieldErrorType::TypeInvalid(bad) => ("Invalid value", bad),
            FieldErrorType::NotSupported(bad) => ("Unsupported value", bad),
            FieldErrorType::NotFound(bad) => ("Not found", bad),
            FieldErrorType::Duplicate(bad) => ("Duplicate value", bad),
        };
        match bad {
            BadValue::Omitted => words.to_owned(),
            bad => format!("{words}: {bad}"),
        }
    }
}

impl FieldError {
    /// Builds an error.
    pub fn new(field: impl Into<String>, kind: FieldErrorType, message: impl Into<String>) -> Self {
        Self { field: field.into(), kind, message: message.into() }
    }

    /// Builds an error about a missing value.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, FieldErrorType::Required, message)
    }

    /// Builds an error about an invalid value.
    pub fn invalid(field: impl Into<String>, value: impl Into<BadValue>, message: impl Into<String>) -> Self {
        Self::new(field, FieldErrorType::Invalid(value.into()), message)
    }

    /// Builds an error about an unsupported value.
    pub fn not_supported(field: impl Into<String>, value: impl Into<BadValue>, supported: &[&str]) -> Self {
        let list = supported.iter().map(|text| go_quote(text)).collect::<Vec<_>>().join(", ");
        let message = if supported.is_empty() { list } else { format!("supported values: {list}") };
        Self::new(field, FieldErrorType::NotSupported(value.into()), message)
    }

    /// Builds an error about a duplicate value.
    pub fn duplicate(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(field, FieldErrorType::Duplicate(value.into()), "")
    }

    /// Builds an error about a forbidden value.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, FieldErrorType::Forbidden, message)
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
        if self.kind == FieldErrorType::Warning && self.field.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.field, self.error_body())
    }
}
