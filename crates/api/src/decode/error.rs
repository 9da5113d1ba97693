//! What is wrong with an object, in the words of Go: its types, its paths through structs that embed others.

use super::{MAX_DEPTH, Place};
use crate::{
    Value,
    budget::Exceeded,
    json,
    path::Path,
    schema::{Part, Ty, Type, schema},
};

/// Why an object does not fit its type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value of the wrong type.
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")]
    Type {
        /// What was sent: `string`, `number`, `number 1.5`, `bool`, `object` or `array`.
        found: String,
        /// The type that has the field.
        owner: String,
        /// Where it is.
        path: String,
        /// What should be there.
        wanted: String,
    },
    /// The whole is no object.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Whole {
        /// What was sent.
        found: String,
        /// What should be there.
        wanted: String,
    },
    /// A value of the right type that cannot be read.
    #[error("{message}")]
    Value {
        /// Where it is.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// Fields that the schema does not know or that are there twice.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
    /// A field that no type is for.
    #[error("{0}")]
    Field(String),
    /// Nested too deeply.
    #[error("the object is nested more than {MAX_DEPTH} levels deep")]
    Depth,
    /// Too much memory.
    #[error(transparent)]
    Memory(#[from] Exceeded),
    /// No JSON.
    #[error(transparent)]
    Json(#[from] json::Error),
}

/// A value of the wrong type at a place of an object of type `top`.
pub(super) fn mismatch(top: &Type, place: Place, found: String) -> Error {
    Error::Type {
        found,
        owner: place.owner.short_name().to_owned(),
        path: go_path(top, place.path),
        wanted: go_type(place.ty),
    }
}

/// The whole is no object.
pub(super) fn whole(found: &str, ty: &Type) -> Error {
    Error::Whole { found: found.to_owned(), wanted: go_struct(ty) }
}

/// What a value is to a field of a type.
pub(super) fn found(ty: &Ty, value: &Value) -> String {
    match value {
        Value::Number(number) if matches!(ty, Ty::Int32 | Ty::Int64 | Ty::IntOrString) => format!("number {number}"),
        other => json::kind_of_value(other).to_owned(),
    }
}

/// The fields on the way to a place, and the structs that Go embeds on it.
fn go_path(top: &Type, path: &Path) -> String {
    let mut at = Some(top);
    let mut steps = Vec::new();
    for name in path.fields().split('.') {
        if let Some(ty) = at {
            embedding(ty, name, &mut steps);
            at = ty.field(name).and_then(|field| field.ty.element_struct()).map(|id| schema().get(id));
        }
        steps.push(name.to_owned());
    }
    steps.join(".")
}

/// The structs embedded in `ty` that have a field.
fn embedding(ty: &Type, name: &str, steps: &mut Vec<String>) {
    let nested = ty.slots.iter().find_map(|slot| match slot.part {
        Part::Nested(id) => Some(schema().get(id)).filter(|inner| inner.field(name).is_some()),
        Part::Field(_) => None,
    });
    if let Some(inner) = nested {
        steps.push(inner.short_name().to_owned());
        embedding(inner, name, steps);
    }
}

/// The type as Go's messages name it.
fn go_type(ty: &Ty) -> String {
    match ty {
        Ty::String | Ty::Quantity | Ty::Time | Ty::MicroTime | Ty::Duration => "string".to_owned(),
        Ty::Bool => "bool".to_owned(),
        Ty::Int32 | Ty::IntOrString => "int32".to_owned(),
        Ty::Int64 => "int64".to_owned(),
        Ty::Double => "float64".to_owned(),
        Ty::Bytes => "[]uint8".to_owned(),
        Ty::Raw => "v1.JSON".to_owned(),
        Ty::List(inner) => format!("[]{}", go_type(inner)),
        // The one such map in the API has a name.
        Ty::Map(inner) if **inner == Ty::Quantity => "v1.ResourceList".to_owned(),
        Ty::Map(inner) => format!("map[string]{}", go_type(inner)),
        Ty::Struct(id) => go_struct(schema().get(*id)),
    }
}

/// `v1.Pod`
fn go_struct(ty: &Type) -> String {
    ty.name.rsplit('/').next().unwrap_or_default().to_owned()
}
