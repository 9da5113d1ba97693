//! Values as upstream shows them in messages: quoted text, JSON, and structs in the form of its internal types.
//!
//! Upstream checks objects in internal types, whose fields have Go names and no rule for leaving out zeros. The tables say
//! which fields there are; this module writes them all.

pub use formats::json::quoted;
use formats::{
    diff,
    json::{escaped, pretty},
};
use serde_json::json;

use super::internal::{field_order, go_name, host_fields};
use crate::{
    Value, decode,
    quantity::Quantity,
    schema::{FieldPresence, StructField, Ty, TypeId, schema},
};

/// JSON as Go writes it, with `<`, `>` and `&` escaped.
pub fn json(value: &Value) -> String {
    escaped(value.to_string())
}

/// A struct as upstream's internal type has it: every field, under its Go name.
pub fn internal(ty: &str, value: &Value) -> String {
    let Some(id) = schema().type_named(ty) else { return json(value) };
    if value.is_null() {
        return "null".to_owned();
    }
    escaped(write_internal(&Ty::Struct(id), Some(value), FieldPresence::Always))
}

/// A list of structs as upstream's internal type has them.
pub fn internal_list(ty: &str, value: &Value) -> String {
    let Some(id) = schema().type_named(ty) else { return json(value) };
    escaped(write_internal(&Ty::List(Box::new(Ty::Struct(id))), Some(value), FieldPresence::NonZero))
}

/// A value of a type as Go writes it to JSON: structs in the order of their fields.
pub fn external(ty: &Ty, value: &Value) -> String {
    escaped(write_external(ty, value))
}

fn write_external(ty: &Ty, value: &Value) -> String {
    match (ty, value) {
        (Ty::Struct(id), Value::Object(map)) => {
            let fields = schema().get(*id).fields.iter();
            let shown = fields.filter_map(|field| Some((field, map.get(field.name)?)));
            object(shown.map(|(field, value)| (field.name.to_owned(), write_external(&field.ty, value))))
        }
        (Ty::List(inner), Value::Array(items)) => list(items.iter().map(|item| write_external(inner, item))),
        (Ty::Map(inner), Value::Object(map)) => {
            object(map.iter().map(|(key, value)| (key.clone(), write_external(inner, value))))
        }
        (_, value) => value.to_string(),
    }
}

fn write_internal(ty: &Ty, value: Option<&Value>, presence: FieldPresence) -> String {
    let value = value.filter(|value| !value.is_null());
    match (ty, value) {
        (Ty::Struct(_) | Ty::String | Ty::Bool | Ty::Int32 | Ty::Int64, None) if presence == FieldPresence::Pointer => {
            "null".to_owned()
        }
        (Ty::Struct(id), value) => structure(*id, value),
        (Ty::List(inner), Some(Value::Array(items))) => {
            list(items.iter().map(|item| write_internal(inner, Some(item), FieldPresence::Always)))
        }
        (Ty::Map(inner), Some(Value::Object(map))) => object(
            map.iter().map(|(key, value)| (key.clone(), write_internal(inner, Some(value), FieldPresence::Always))),
        ),
        (_, Some(value)) => value.to_string(),
        (ty, None) => zero(ty, presence).to_owned(),
    }
}

/// A struct of upstream's own API is internal inside too; those of `meta` are the served ones everywhere.
fn structure(id: TypeId, value: Option<&Value>) -> String {
    let ty = schema().get(id);
    let empty = json!({});
    if ty.name.starts_with("meta/") {
        return write_external(&Ty::Struct(id), value.unwrap_or(&empty));
    }
    let member = |field: &StructField| {
        let inside = value.and_then(|value| value.get(field.name));
        (go_name(&ty.name, field.name), write_internal(&field.ty, inside, field.presence))
    };
    if ty.name == "core/v1.PodSpec" {
        let spec = value.unwrap_or(&empty);
        let member = |field: &StructField| match field.name {
            "securityContext" => ("SecurityContext".to_owned(), pod_security_context(field, spec)),
            _ => member(field),
        };
        return object(field_order(ty).into_iter().map(member));
    }
    object(field_order(ty).into_iter().map(member))
}

/// Upstream keeps what a pod says about the host at the top of its security context.
fn pod_security_context(field: &StructField, spec: &Value) -> String {
    let inside = spec.get(field.name).cloned().unwrap_or_else(|| json!({}));
    let rest = write_internal(&field.ty, Some(&inside), FieldPresence::Always);
    let host = object(host_fields(spec).into_iter());
    format!("{},{}", host.trim_end_matches('}'), rest.trim_start_matches('{'))
}

fn zero(ty: &Ty, presence: FieldPresence) -> &'static str {
    match ty {
        _ if presence == FieldPresence::Pointer => "null",
        Ty::String => "\"\"",
        Ty::Bool => "false",
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => "0",
        Ty::Quantity => "\"0\"",
        Ty::Duration => "\"0s\"",
        _ => "null",
    }
}

fn object(fields: impl Iterator<Item = (String, String)>) -> String {
    let fields: Vec<String> = fields.map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
    format!("{{{}}}", fields.join(","))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// What changed between two structs of a type, in the lines of upstream's internal JSON.
pub fn difference(ty: &str, old: &Value, new: &Value) -> String {
    diff::unified(&pretty(&internal(ty, old)), &pretty(&internal(ty, new)))
}

/// Whether two values mean the same: nothing, an empty list and an empty map are one, and quantities are compared by
/// amount.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let all = |one: &crate::Map, other: &crate::Map| {
                one.iter().all(|(key, value)| same(value, other.get(key).unwrap_or(&Value::Null)))
            };
            all(a, b) && b.iter().filter(|(key, _)| !a.contains_key(*key)).all(|(_, value)| same(&Value::Null, value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::String(a), Value::String(b)) => {
            a == b
                || matches!((Quantity::parse(a), Quantity::parse(b)), (Some(x), Some(y)) if x.partial_cmp(&y) == Some(std::cmp::Ordering::Equal) && !a.is_empty())
        }
        (Value::Null, Value::Array(_)) | (Value::Array(_), Value::Null) => decode::is_zero(a) && decode::is_zero(b),
        (a, b) => a == b,
    }
}
