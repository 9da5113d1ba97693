//! What validation says: one wrong field, the kind of fault, and its text as upstream writes it.

use std::fmt;

use super::render;
use crate::{Value, json};

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
    Invalid(Bad),
    /// The value is of the wrong type.
    TypeInvalid(Bad),
    /// The value is not one of those allowed.
    NotSupported(Bad),
    /// What the value refers to does not exist.
    NotFound(Bad),
    /// The value occurs twice.
    Duplicate(Bad),
    /// The field must not be set, or must not change.
    Forbidden,
    /// The value is too long to be shown.
    TooLong,
    /// The list has too many elements; how many it has.
    TooMany(usize),
    /// The list has too few elements; how many it has.
    TooFew(usize),
    /// The check itself failed.
    Internal,
    /// Nothing is wrong, but something is worth telling.
    Warning,
}

/// A bad value, as it is to be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Bad {
    /// The value itself.
    Value(Value),
    /// Text that was made for it: upstream shows some values in the form of its own types.
    Shown(String),
    /// Upstream does not show it.
    Omitted,
}

impl Bad {
    /// A struct, or a list of structs, as upstream's type has it.
    pub(super) fn of(ty: &str, value: &Value) -> Self {
        let list = value.is_array();
        Bad::Shown(if list { render::internal_list(ty, value) } else { render::internal(ty, value) })
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
            Bad::Value(value) => f.write_str(&render::json(value)),
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

    /// The words and the value that a message begins with.
    fn head(&self) -> String {
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
    /// A fault with its message.
    pub fn new(field: impl Into<String>, kind: Fault, message: impl Into<String>) -> Self {
        Self { field: field.into(), kind, message: message.into() }
    }

    /// A value is missing.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Required, message)
    }

    /// A value is wrong.
    pub fn invalid(field: impl Into<String>, value: impl Into<Bad>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Invalid(value.into()), message)
    }

    /// A value is not among the supported ones.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Bad>, supported: &[&str]) -> Self {
        let list = supported.iter().map(|text| render::quoted(text)).collect::<Vec<_>>().join(", ");
        let message = if supported.is_empty() { list } else { format!("supported values: {list}") };
        Self::new(field, Fault::NotSupported(value.into()), message)
    }

    /// A value occurs twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Bad>) -> Self {
        Self::new(field, Fault::Duplicate(value.into()), "")
    }

    /// Something that must not be done.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(field, Fault::Forbidden, message)
    }

    /// The fault without the field, as in a `Status` cause.
    pub fn detail(&self) -> String {
        match (self.kind.head(), self.message.as_str()) {
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
        write!(f, "{}: {}", self.field, self.detail())
    }
}
