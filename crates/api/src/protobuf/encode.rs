//! Encodes objects as protobuf messages in upstream's field order and with its zero values: singular fields always
//! unless optional, lists and maps per element, maps sorted by key.

use base64::{Engine, prelude::BASE64_STANDARD};
use formats::wire;

use crate::{
    Map, Value, duration,
    schema::{FieldType, SchemaShape, SlotContent, StructField, StructType, schema},
    time,
};

/// The seconds of Go's zero time, encoded as an empty message.
pub const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

/// Appends the fields of a struct. A value of the wrong type counts as unset; canonical objects have none.
pub fn encode_struct(out: &mut Vec<u8>, ty: &StructType, map: Option<&Map>) {
    for slot in &ty.slots {
        match slot.content {
            SlotContent::Nested(id) => {
                wire::put_message(out, slot.number, |out| encode_struct(out, schema().get(id), map))
            }
            SlotContent::Field(at) => {
                let field = &ty.fields[at];
                self::encode_field(
                    out,
                    slot.number,
                    field,
                    map.and_then(|map| map.get(field.name)).unwrap_or(&Value::Null),
                );
            }
        }
    }
}

fn encode_field(out: &mut Vec<u8>, number: u32, field: &StructField, value: &Value) {
    match &field.ty {
        FieldType::List(inner) if field.protobuf_wrapped => {
            if let Some(items) = value.as_array() {
                wire::put_message(out, number, |out| encode_elements(out, 1, field, inner, items));
            }
        }
        FieldType::List(inner) => {
            encode_elements(out, number, field, inner, value.as_array().map_or(&[], Vec::as_slice))
        }
        FieldType::Map(inner) => encode_map_entries(out, number, field, inner, value),
        FieldType::Bytes if value.is_null() => {}
        _ if field.protobuf_optional && value.is_null() => {}
        ty => encode_element(out, number, field, ty, value),
    }
}

fn encode_elements(out: &mut Vec<u8>, number: u32, field: &StructField, inner: &FieldType, items: &[Value]) {
    items.iter().for_each(|item| encode_element(out, number, field, inner, item));
}

fn encode_map_entries(out: &mut Vec<u8>, number: u32, field: &StructField, inner: &FieldType, value: &Value) {
    let Some(map) = value.as_object() else { return };
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in entries {
        wire::put_message(out, number, |out| {
            wire::put_bytes(out, 1, key.as_bytes());
            if *inner != FieldType::Bytes || !value.is_null() {
                encode_element(out, 2, field, inner, value);
            }
        });
    }
}

/// Encodes one value with its tag, zero or not.
fn encode_element(out: &mut Vec<u8>, number: u32, field: &StructField, ty: &FieldType, value: &Value) {
    match ty {
        FieldType::String => wire::put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        FieldType::Bool => wire::put_number(out, number, value.as_bool().unwrap_or_default().into()),
        FieldType::Int32 | FieldType::Int64 => wire::put_number(out, number, value.as_i64().unwrap_or_default() as u64),
        FieldType::Double => wire::put_double(out, number, value.as_f64().unwrap_or_default()),
        FieldType::Bytes => {
            let decoded = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
            wire::put_bytes(out, number, &decoded);
        }
        FieldType::Time => wire::put_message(out, number, |out| encode_time(out, value, false)),
        FieldType::MicroTime => wire::put_message(out, number, |out| encode_time(out, value, true)),
        FieldType::Duration => {
            let nanos = value.as_str().and_then(duration::parse).unwrap_or_default();
            wire::put_message(out, number, |out| wire::put_number(out, 1, nanos as u64));
        }
        FieldType::Quantity => {
            let text = value.as_str().unwrap_or("0");
            wire::put_message(out, number, |out| wire::put_bytes(out, 1, text.as_bytes()));
        }
        FieldType::IntOrString => wire::put_message(out, number, |out| {
            wire::put_number(out, 1, value.is_string().into());
            wire::put_number(out, 2, value.as_i64().unwrap_or_default() as u64);
            wire::put_bytes(out, 3, value.as_str().unwrap_or_default().as_bytes());
        }),
        FieldType::Raw => wire::put_message(out, number, |out| encode_raw(out, field, value)),
        FieldType::Struct(id) => {
            wire::put_message(out, number, |out| encode_struct(out, schema().get(*id), value.as_object()))
        }
        FieldType::List(inner) => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            wire::put_message(out, number, |out| encode_elements(out, 1, field, inner, items));
        }
        // No type of the schema has a map within a list or map.
        FieldType::Map(_) => {}
    }
}

fn encode_time(out: &mut Vec<u8>, value: &Value, micros: bool) {
    let Some(time) = value.as_str().and_then(time::parse) else { return };
    // A time before the epoch has a positive fraction.
    let nanos = time.as_nanosecond();
    let (seconds, fraction) = (nanos.div_euclid(1_000_000_000) as i64, nanos.rem_euclid(1_000_000_000) as u64);
    if seconds == ZERO_TIME_SECONDS && (!micros || fraction == 0) {
        return;
    }
    wire::put_number(out, 1, seconds as u64);
    wire::put_number(out, 2, if micros { fraction / 1000 * 1000 } else { 0 });
}

fn encode_raw(out: &mut Vec<u8>, field: &StructField, value: &Value) {
    match field.schema_shape {
        Some(shapes) => encode_schema_shape(out, field, shapes, value),
        None if value.is_null() => {}
        None => wire::put_bytes(out, 1, value.to_string().as_bytes()),
    }
}

fn encode_schema_shape(out: &mut Vec<u8>, field: &StructField, shapes: SchemaShape, value: &Value) {
    match shapes {
        SchemaShape::SchemaOrBool(id) => {
            wire::put_number(out, 1, (value.is_object() || *value == Value::Bool(true)).into());
            if value.is_object() {
                encode_element(out, 2, field, &FieldType::Struct(id), value);
            }
        }
        SchemaShape::SchemaOrArray(id) | SchemaShape::SchemaOrStrings(id) if value.is_object() => {
            encode_element(out, 1, field, &FieldType::Struct(id), value);
        }
        SchemaShape::SchemaOrArray(id) => {
            encode_elements(out, 2, field, &FieldType::Struct(id), value.as_array().map_or(&[], Vec::as_slice));
        }
        SchemaShape::SchemaOrStrings(_) => {
            encode_elements(out, 2, field, &FieldType::String, value.as_array().map_or(&[], Vec::as_slice))
        }
    }
}
