//! Encodes objects as Go does: `kind` and `apiVersion` first, struct fields in the order of the schema, map keys sorted,
//! and `<`, `>` and `&` escaped.
//!
//! Custom resources have sorted keys at every level, as upstream's unstructured objects.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::{
    Map, Value, meta,
    schema::{FieldType, StructField, TypeId, schema},
};

/// Groups with kinds but without resources or versions of resources.
const META_GROUPS: [&str; 3] = ["", "meta.k8s.io", "apidiscovery.k8s.io"];

/// Encodes an object by its own `kind` and `apiVersion`.
pub fn encode_object(object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_value(&mut out, None, None, object);
    out
}

/// Encodes a value of a type.
pub fn encode_typed(ty: &FieldType, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(&mut out, None, Some(ty), value);
    out
}

/// The built-in type that an object declares by its `kind` and `apiVersion`.
pub fn declared_type(object: &Value) -> Option<TypeId> {
    let (api_version, kind) = (meta::string_at(object, &["apiVersion"]), meta::string_at(object, &["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some(resource) = schema().resource_of_kind(group, version, kind) {
        return Some(resource.ty);
    }
    let is_known = !kind.is_empty() && (META_GROUPS.contains(&group) || schema().has_kinds(group, version));
    is_known.then(|| schema().type_of_kind(group, version, kind)).flatten()
}

/// The entries of a struct in Go's order, with their field; undeclared ones follow, sorted. `None` sorts all entries.
pub fn ordered_fields(
    ty: Option<TypeId>,
    map: &Map,
) -> impl Iterator<Item = (&str, Option<&'static StructField>, &Value)> {
    let ty = ty.map(|id| schema().get(id));
    let rank = |name: &str| match ty.map(|ty| ty.field_position(name)) {
        Some(Some(position)) => (position + 2, ty.map(|ty| &ty.fields[position])),
        Some(None) if name == "kind" => (0, None),
        Some(None) if name == "apiVersion" => (1, None),
        _ => (usize::MAX, None),
    };
    let mut entries: Vec<_> = map.iter().map(|(name, value)| (rank(name), name.as_str(), value)).collect();
    entries.sort_by_key(|((position, _), ..)| *position);
    entries.into_iter().map(|((_, field), name, value)| (name, field, value))
}

/// Appends a value of a type; `field` is the field that has it, or whose element it is. Without a type, an object's own
/// `kind` decides.
pub fn write_value(out: &mut Vec<u8>, field: Option<&StructField>, ty: Option<&FieldType>, value: &Value) {
    match (ty, value) {
        (Some(FieldType::Struct(id)), Value::Object(map)) => write_struct(out, Some(*id), map),
        (Some(FieldType::Map(inner)), Value::Object(map)) => {
            write_object(out, map.iter(), |out, value| write_value(out, field, Some(inner), value));
        }
        (_, Value::Object(map)) => {
            let shape = field.and_then(|field| field.schema_shape).map(|shape| shape.schema());
            write_struct(out, shape.or_else(|| declared_type(value)), map);
        }
        (ty, Value::Array(items)) => {
            let inner = if let Some(FieldType::List(inner)) = ty { Some(&**inner) } else { ty };
            out.push(b'[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_value(out, field, inner, item);
            }
            out.push(b']');
        }
        (_, scalar) => write_scalar(out, scalar),
    }
}

fn write_struct(out: &mut Vec<u8>, ty: Option<TypeId>, map: &Map) {
    if ty.is_none() {
        // The map is sorted.
        return write_object(out, map.iter(), |out, value| write_value(out, None, None, value));
    }
    let fields = ordered_fields(ty, map).map(|(name, field, value)| (name, (field, value)));
    write_object(out, fields, |out, (field, value)| write_value(out, field, field.map(|field| &field.ty), value));
}

fn write_object<N: AsRef<str>, V>(
    out: &mut Vec<u8>,
    entries: impl Iterator<Item = (N, V)>,
    write: impl Fn(&mut Vec<u8>, V),
) {
    out.push(b'{');
    for (position, (name, value)) in entries.enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_string(out, name.as_ref());
        out.push(b':');
        write(out, value);
    }
    out.push(b'}');
}

/// Appends a scalar or a string.
pub fn write_scalar(out: &mut Vec<u8>, scalar: &Value) {
    match scalar {
        Value::String(text) => write_string(out, text),
        scalar => write_escaped(out, scalar),
    }
}

/// Appends a string; most have nothing to escape and are copied.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    // 0xe2 begins U+2028 and U+2029.
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2);
    if text.bytes().all(is_plain) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        write_escaped(out, text);
    }
}

fn write_escaped(out: &mut Vec<u8>, scalar: &(impl Serialize + ?Sized)) {
    // Writing a scalar to memory cannot fail.
    scalar.serialize(&mut Serializer::with_formatter(out, GoFormatter)).expect("a scalar is written to memory");
}

/// Escapes the characters that Go escapes for HTML.
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(position) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, after) = rest.split_at(position);
            let mut after = after.chars();
            let escaped = after.next().map_or(0, u32::from);
            CompactFormatter.write_string_fragment(writer, plain)?;
            write!(writer, "\\u{escaped:04x}")?;
            rest = after.as_str();
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encode(object: Value) -> String {
        String::from_utf8(encode_object(&object)).unwrap()
    }

    #[test]
    fn fields_are_in_the_order_of_go_structs() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
            "metadata": {"uid": "u", "name": "p", "labels": {"b": "1", "a": "<&>"}, "namespace": "n"},
            "spec": {"nodeName": "x", "containers": [{"image": "i", "name": "c"}]}});
        let want = concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","uid":"u","#,
            r#""labels":{"a":"\u003c\u0026\u003e","b":"1"}},"spec":{"containers":[{"name":"c","image":"i"}],"nodeName":"x"},"#,
            r#""status":{"phase":"Running"}}"#
        );
        assert_eq!(encode(pod), want);
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"versions": [
            {"schema": {"openAPIV3Schema": {"properties": {"a": {"items": {"type": "string", "description": "d"}, "type": "array"}}}}}]}});
        assert!(encode(crd).contains(r#"{"a":{"type":"array","items":{"description":"d","type":"string"}}}"#));
    }

    #[test]
    fn custom_resources_have_sorted_keys() {
        let boat = json!({"kind": "Deployment", "apiVersion": "apps.example.com/v1", "metadata": {"uid": "u", "name": "b"}, "a": 1});
        let want =
            r#"{"a":1,"apiVersion":"apps.example.com/v1","kind":"Deployment","metadata":{"name":"b","uid":"u"}}"#;
        assert_eq!(encode(boat), want);
    }
}
