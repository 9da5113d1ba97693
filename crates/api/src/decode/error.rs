//! Decode errors in Go's wording, with Go type names and paths through embedded structs.

use super::{FieldContext, MAX_DEPTH};
use crate::{
    Value,
    budget::OverBudget,
    field_path::FieldPath,
    json,
    schema::{FieldType, SlotContent, StructType, schema},
};

/// An object that does not match its type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value of the wrong type.
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")]
    TypeMismatch {
        /// The JSON type sent: `string`, `number`, `number 1.5`, `bool`, `object` or `array`.
        found: String,
        /// The struct that has the field.
        owner: String,
        /// The field path.
        path: String,
        /// The expected Go type.
        wanted: String,
    },
    /// The root is not an object.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    NotAnObject {
        /// The JSON type sent.
        found: String,
        /// The expected Go type.
        wanted: String,
    },
    /// A malformed value of the right JSON type.
    #[error("{message}")]
    InvalidValue {
        /// The field path.
        path: String,
        /// The message.
        message: String,
    },
    /// Unknown or duplicate fields under strict field validation.
    #[error("strict decoding error: {}", .0.join(", "))]
    StrictViolations(Vec<String>),
    /// A field without a type.
    #[error("{0}")]
    Field(String),
    /// Nested too deeply.
    #[error("the object is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// The memory budget is exceeded.
    #[error(transparent)]
    MemoryLimit(#[from] OverBudget),
    /// Malformed JSON.
    #[error(transparent)]
    MalformedJson(#[from] json::JsonError),
}

impl DecodeError {
    /// The message of upstream's converter from unstructured objects, which the result of a strategic merge patch passes.
    pub fn converter_message(&self) -> String {
        let (DecodeError::TypeMismatch { found, wanted, .. } | DecodeError::NotAnObject { found, wanted }) = self
        else {
            return self.to_string();
        };
        let kind = match found.split_once(' ').unwrap_or((found, "")) {
            ("object", _) => "map",
            ("array", _) => "slice",
            ("number", number) if number.contains(['.', 'e', 'E']) => "float64",
            ("number", _) => "int64",
            (other, _) => other,
        };
        match (kind, wanted.as_str()) {
            ("int64", "string") | ("float64", "int32" | "int64") => format!("cannot convert {kind} to {wanted}"),
            (_, "string" | "bool" | "int32" | "int64" | "float64") => format!("unrecognized type: {wanted}"),
            (_, list) if list.starts_with("[]") => format!("cannot restore slice from {kind}"),
            (_, map) if map.starts_with("map[") || map == "v1.ResourceList" => {
                format!("cannot restore map from {kind}")
            }
            _ => format!("cannot restore struct from: {kind}"),
        }
    }
}

/// Builds the error of a value of the wrong type in an object of type `top`.
pub(super) fn type_mismatch(top: &StructType, place: FieldContext, found: String) -> DecodeError {
    DecodeError::TypeMismatch {
        found,
        owner: place.owner.short_name().to_owned(),
        path: go_path(top, place.path),
        wanted: go_type_name(place.ty),
    }
}

/// Builds the error of a root that is not an object.
pub(super) fn not_an_object(found: &str, ty: &StructType) -> DecodeError {
    DecodeError::NotAnObject { found: found.to_owned(), wanted: go_struct_name(ty) }
}

/// Names the JSON type of a value for a field of type `ty`.
pub(super) fn describe_value(ty: &FieldType, value: &Value) -> String {
    match value {
        Value::Number(number) if matches!(ty, FieldType::Int32 | FieldType::Int64 | FieldType::IntOrString) => {
            format!("number {number}")
        }
        other => json::value_type_name(other).to_owned(),
    }
}

/// Joins the field names of a path with the structs that Go embeds on it.
fn go_path(top: &StructType, path: &FieldPath) -> String {
    let mut at = Some(top);
    let mut steps = Vec::new();
    for name in path.field_names().split('.') {
        if let Some(ty) = at {
            push_embedded_structs(ty, name, &mut steps);
            at = ty.field(name).and_then(|field| field.ty.element_struct()).map(|id| schema().get(id));
        }
        steps.push(name.to_owned());
    }
    steps.join(".")
}

/// Appends the structs embedded in `ty` that declare a field.
fn push_embedded_structs(ty: &StructType, name: &str, steps: &mut Vec<String>) {
    let nested = ty.slots.iter().find_map(|slot| match slot.content {
        SlotContent::Nested(id) => Some(schema().get(id)).filter(|inner| inner.field(name).is_some()),
        SlotContent::Field(_) => None,
    });
    if let Some(inner) = nested {
        steps.push(inner.short_name().to_owned());
        push_embedded_structs(inner, name, steps);
    }
}

/// The Go type name in messages.
fn go_type_name(ty: &FieldType) -> String {
    match ty {
        FieldType::String | FieldType::Quantity | FieldType::Time | FieldType::MicroTime | FieldType::Duration => {
            "string".to_owned()
        }
        FieldType::Bool => "bool".to_owned(),
        FieldType::Int32 | FieldType::IntOrString => "int32".to_owned(),
        FieldType::Int64 => "int64".to_owned(),
        FieldType::Double => "float64".to_owned(),
        FieldType::Bytes => "[]uint8".to_owned(),
        FieldType::Raw => "v1.JSON".to_owned(),
        FieldType::List(inner) => format!("[]{}", go_type_name(inner)),
        // The only such map in the API has a named type.
        FieldType::Map(inner) if **inner == FieldType::Quantity => "v1.ResourceList".to_owned(),
        FieldType::Map(inner) => format!("map[string]{}", go_type_name(inner)),
        FieldType::Struct(id) => go_struct_name(schema().get(*id)),
    }
}

/// Formats `v1.Pod`.
fn go_struct_name(ty: &StructType) -> String {
    ty.name.rsplit('/').next().unwrap_or_default().to_owned()
}
