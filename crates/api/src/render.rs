//! Renders values as in upstream's messages: quoted strings, JSON, and structs in the form of its internal types.
//!
//! Upstream validates internal types, whose fields have Go names and no `omitempty`. This module renders all of their
//! fields.

mod internal_types;

use formats::{
    diff,
    json::{escape_html, indent_json},
};
use serde_json::json;

use self::internal_types::{go_field_name, host_fields, internal_field_order};
use crate::{
    Value, decode,
    field_error::BadValue,
    json_encoder,
    quantity::Quantity,
    schema::{FieldPresence, FieldType, StructField, TypeId, schema},
};

/// Renders JSON as Go does, with `<`, `>` and `&` escaped.
pub fn render_json(value: &Value) -> String {
    escape_html(value.to_string())
}

/// Renders a struct, or a list of structs, as the bad value of an error.
pub fn render_bad_value(ty: &str, value: &Value) -> BadValue {
    BadValue::Rendered(if value.is_array() { render_internal_list(ty, value) } else { render_internal(ty, value) })
}

/// Renders a struct as upstream's internal type: all fields, with Go names.
pub fn render_internal(ty: &str, value: &Value) -> String {
    let Some(id) = schema().type_named(ty) else { return render_json(value) };
    if value.is_null() {
        return "null".to_owned();
    }
    escape_html(write_internal(&FieldType::Struct(id), Some(value), FieldPresence::Always))
}

/// Renders a list of structs as upstream's internal type.
fn render_internal_list(ty: &str, value: &Value) -> String {
    let Some(id) = schema().type_named(ty) else { return render_json(value) };
    escape_html(write_internal(&FieldType::List(Box::new(FieldType::Struct(id))), Some(value), FieldPresence::NonZero))
}

/// Renders a value of a type as Go encodes it: struct fields in order.
pub fn render_external(ty: &FieldType, value: &Value) -> String {
    String::from_utf8(json_encoder::encode_typed(ty, value)).unwrap_or_default()
}

fn write_internal(ty: &FieldType, value: Option<&Value>, presence: FieldPresence) -> String {
    let value = value.filter(|value| !value.is_null());
    match (ty, value) {
        (FieldType::Struct(_) | FieldType::String | FieldType::Bool | FieldType::Int32 | FieldType::Int64, None)
            if presence == FieldPresence::Pointer =>
        {
            "null".to_owned()
        }
        (FieldType::Struct(id), value) => write_internal_struct(*id, value),
        (FieldType::List(inner), Some(Value::Array(items))) => {
            join_list(items.iter().map(|item| write_internal(inner, Some(item), FieldPresence::Always)))
        }
        (FieldType::Map(inner), Some(Value::Object(map))) => join_object(
            map.iter().map(|(key, value)| (key.clone(), write_internal(inner, Some(value), FieldPresence::Always))),
        ),
        (_, Some(value)) => value.to_string(),
        (ty, None) => internal_zero(ty, presence).to_owned(),
    }
}

/// Writes a struct of upstream's internal API; structs of `meta` are versioned everywhere.
fn write_internal_struct(id: TypeId, value: Option<&Value>) -> String {
    let ty = schema().get(id);
    let empty = json!({});
    if ty.name.starts_with("meta/") {
        return render_external(&FieldType::Struct(id), value.unwrap_or(&empty));
    }
    let member = |field: &StructField| {
        let inside = value.and_then(|value| value.get(field.name));
        (go_field_name(&ty.name, field.name), write_internal(&field.ty, inside, field.presence))
    };
    if ty.name == "core/v1.PodSpec" {
        let spec = value.unwrap_or(&empty);
        let member = |field: &StructField| match field.name {
            "securityContext" => ("SecurityContext".to_owned(), pod_security_context(field, spec)),
            _ => member(field),
        };
        return join_object(internal_field_order(ty).into_iter().map(member));
    }
    match ty.field("metadata") {
        Some(metadata) => {
            let others = internal_field_order(ty).into_iter().filter(|field| field.name != metadata.name).map(member);
            let embedded =
                write_internal(&metadata.ty, value.and_then(|value| value.get("metadata")), metadata.presence);
            join_embedded(&embedded, &join_object(others))
        }
        None => join_object(internal_field_order(ty).into_iter().map(member)),
    }
}

/// Joins two objects: Go writes the fields of an embedded struct, such as the object meta, beside the others.
fn join_embedded(embedded: &str, others: &str) -> String {
    match (embedded, others) {
        ("{}", object) | (object, "{}") => object.to_owned(),
        (embedded, others) => {
            let head = embedded.strip_suffix('}').unwrap_or(embedded);
            format!("{head},{}", others.strip_prefix('{').unwrap_or(others))
        }
    }
}

/// Writes a pod security context, with the host fields that upstream keeps at its top.
fn pod_security_context(field: &StructField, spec: &Value) -> String {
    let inside = spec.get(field.name).cloned().unwrap_or_else(|| json!({}));
    let rest = write_internal(&field.ty, Some(&inside), FieldPresence::Always);
    let host = join_object(host_fields(spec).into_iter());
    format!("{},{}", host.trim_end_matches('}'), rest.trim_start_matches('{'))
}

fn internal_zero(ty: &FieldType, presence: FieldPresence) -> &'static str {
    match ty {
        _ if presence == FieldPresence::Pointer => "null",
        FieldType::String => "\"\"",
        FieldType::Bool => "false",
        FieldType::Int32 | FieldType::Int64 | FieldType::Double | FieldType::IntOrString => "0",
        FieldType::Quantity => "\"0\"",
        FieldType::Duration => "\"0s\"",
        _ => "null",
    }
}

fn join_object(fields: impl Iterator<Item = (String, String)>) -> String {
    let fields: Vec<String> = fields.map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
    format!("{{{}}}", fields.join(","))
}

fn join_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// Renders the difference between two structs as a diff of their internal JSON.
pub fn render_difference(ty: &str, old: &Value, new: &Value) -> String {
    diff::unified_diff(&indent_json(&render_internal(ty, old)), &indent_json(&render_internal(ty, new)))
}

/// Whether two values are semantically equal: absent, empty list and empty map are equal, and quantities compare by
/// amount. Upstream: `apiequality.Semantic.DeepEqual`.
pub fn semantically_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let all = |one: &crate::Map, other: &crate::Map| {
                one.iter().all(|(key, value)| semantically_equal(value, other.get(key).unwrap_or(&Value::Null)))
            };
            all(a, b)
                && b.iter()
                    .filter(|(key, _)| !a.contains_key(*key))
                    .all(|(_, value)| semantically_equal(&Value::Null, value))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| semantically_equal(a, b))
        }
        (Value::String(a), Value::String(b)) => {
            a == b
                || matches!((Quantity::parse(a), Quantity::parse(b)), (Some(x), Some(y)) if x.partial_cmp(&y) == Some(std::cmp::Ordering::Equal) && !a.is_empty())
        }
        (Value::Null, Value::Array(_)) | (Value::Array(_), Value::Null) => decode::is_zero(a) && decode::is_zero(b),
        (a, b) => a == b,
    }
}
