//! Random objects, generated from the schema with a seeded generator: every field of every type, with edge-case values.

#![allow(dead_code, reason = "each test uses a part")]

use fastrand::Rng;
use ferry_api::{
    Map, Value, decode,
    schema::{FieldType, SchemaShape, StructField, TypeId, schema},
};
use serde_json::json;

/// The maximum depth of generated objects.
const DEPTH: usize = 6;

const TEXTS: [&str; 32] = [
    "",
    "a",
    "nginx",
    "yes",
    "no",
    "on",
    "null",
    "~",
    "true",
    "1",
    "-1.5",
    "0x1f",
    "1e3",
    "1:30",
    "2001-01-01",
    " lead",
    "trail ",
    "# hash",
    "a: b",
    "- dash",
    "a\nb\n",
    "a\n\n",
    "\n",
    " \n x",
    "\ttab",
    "\"quoted\" 'single'",
    "back\\slash",
    "é ü 漢字 😀",
    "\u{7}\u{1b}\u{85}\u{2028}",
    "{braces}",
    "%percent",
    "<<",
];
const QUANTITIES: [&str; 8] = ["0", "100m", "1", "1500m", "1Gi", "10Ei", "1k", "1e3"];
const DURATIONS: [&str; 5] = ["0s", "1m30s", "1h0m0s", "250ms", "1.5µs"];

/// A canonical random object of a type.
pub fn random_object(rng: &mut Rng, ty: TypeId) -> Value {
    let value = random_struct(rng, ty, DEPTH);
    decode::canonicalize(ty, value).expect("generated objects are of their type").object
}

fn random_struct(rng: &mut Rng, id: TypeId, depth: usize) -> Value {
    let ty = schema().get(id);
    let mut map = Map::new();
    for field in &ty.fields {
        let wanted = if depth == DEPTH { 90 } else { 5 * depth };
        if depth > 0 && rng.usize(..100) < wanted {
            map.insert(field.name.to_owned(), random_value(rng, field, &field.ty, depth));
        }
    }
    Value::Object(map)
}

fn random_value(rng: &mut Rng, field: &StructField, ty: &FieldType, depth: usize) -> Value {
    match ty {
        FieldType::String => random_text(rng).into(),
        FieldType::Bool => rng.bool().into(),
        FieldType::Int32 => rng.i32(..).into(),
        FieldType::Int64 => rng.choice([0, 1, -1, i64::MAX, i64::MIN, 1 << 53]).unwrap_or_default().into(),
        FieldType::Double => {
            rng.choice([json!(0), json!(1), json!(0.25), json!(-1.5e-7), json!(1e300)]).unwrap_or_default()
        }
        FieldType::Bytes => rng.choice(["", "AA==", "/+8=", "aGVsbG8="]).unwrap_or_default().into(),
        FieldType::Time => {
            format!("20{:02}-0{}-1{}T1{}:00:0{}Z", rng.u8(..99), rng.u8(1..9), rng.u8(..9), rng.u8(..9), rng.u8(..9))
                .into()
        }
        FieldType::MicroTime => format!("2026-01-02T03:04:05.{:06}Z", rng.u32(..1_000_000)).into(),
        FieldType::Duration => rng.choice(DURATIONS).unwrap_or_default().into(),
        FieldType::Quantity => rng.choice(QUANTITIES).unwrap_or_default().into(),
        FieldType::IntOrString => {
            if rng.bool() {
                rng.i32(..).into()
            } else {
                random_text(rng).into()
            }
        }
        FieldType::Raw => match field.schema_shape {
            Some(shapes) => random_schema_shape(rng, shapes, depth),
            None => json!({"raw": random_json(rng, 3)}),
        },
        FieldType::Struct(id) => random_struct(rng, *id, depth - 1),
        FieldType::List(inner) => (0..rng.usize(1..4)).map(|_| random_value(rng, field, inner, depth)).collect(),
        FieldType::Map(inner) => {
            let entries = (0..rng.usize(1..4))
                .map(|at| (format!("{}{at}", random_text(rng)), random_value(rng, field, inner, depth)));
            Value::Object(entries.collect())
        }
    }
}

fn random_schema_shape(rng: &mut Rng, shapes: SchemaShape, depth: usize) -> Value {
    match shapes {
        SchemaShape::SchemaOrBool(_) if rng.bool() => rng.bool().into(),
        SchemaShape::SchemaOrArray(id) if rng.bool() => vec![random_struct(rng, id, depth - 1); 2].into(),
        SchemaShape::SchemaOrStrings(_) if rng.bool() => json!(["a", random_text(rng)]),
        SchemaShape::SchemaOrBool(id) | SchemaShape::SchemaOrArray(id) | SchemaShape::SchemaOrStrings(id) => {
            random_struct(rng, id, depth - 1)
        }
    }
}

fn random_json(rng: &mut Rng, depth: usize) -> Value {
    match rng.u8(..if depth > 0 { 7 } else { 5 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => rng.i64(..).into(),
        3 => json!(0.5),
        4 => random_text(rng).into(),
        5 => (0..3).map(|_| random_json(rng, depth - 1)).collect(),
        _ => json!({random_text(rng): random_json(rng, depth - 1), "b": random_json(rng, depth - 1)}),
    }
}

fn random_text(rng: &mut Rng) -> String {
    if rng.u8(..20) == 0 {
        return "long words ".repeat(rng.usize(1..30));
    }
    rng.choice(TEXTS).unwrap_or_default().to_owned()
}
