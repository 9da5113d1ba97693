//! The document of OpenAPI 2 in protobuf: the messages of gnostic's `openapi.v2`, of which Kubernetes documents use a part.
//!
//! What OpenAPI does not know (`x-…`) is kept as text in YAML; JSON is such text.

use crate::{Map, Value};

/// The document as a message.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, info(&document["info"]));
    out.message(8, named(2, &document["paths"], path));
    out.message(9, named(1, &document["definitions"], schema));
    out.message(10, named(1, &document["parameters"], parameter));
    for requirement in items(&document["security"]) {
        out.message(12, named(1, requirement, texts));
    }
    out.message(13, named(1, &document["securityDefinitions"], security));
    out.0
}

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u32, message: Message) {
        self.bytes(number, &message.0);
    }

    /// A text; nothing where there is none.
    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, value: &Value) {
        items(value).iter().filter_map(Value::as_str).for_each(|text| self.bytes(number, text.as_bytes()));
    }

    /// A truth value; nothing where it is false.
    fn flag(&mut self, number: u32, value: &Value) {
        if value == true {
            self.varint(u64::from(number) << 3);
            self.varint(1);
        }
    }

    /// A message of its own, where the value is there.
    fn optional(&mut self, number: u32, value: Option<&Value>, write: fn(&Value) -> Message) {
        if let Some(value) = value {
            self.message(number, write(value));
        }
    }

    /// The fields whose names start with `x-`.
    fn extensions(&mut self, number: u32, value: &Value) {
        let fields = value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-"));
        for (name, value) in fields {
            let mut any = Message::default();
            any.bytes(2, format!("{value}\n").as_bytes());
            let mut entry = Message::default();
            entry.bytes(1, name.as_bytes());
            entry.message(2, any);
            self.message(number, entry);
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A map: one entry of name and value per field.
fn named(number: u32, value: &Value, write: fn(&Value) -> Message) -> Message {
    let mut out = Message::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let mut entry = Message::default();
        entry.bytes(1, name.as_bytes());
        entry.message(2, write(value));
        out.message(number, entry);
    }
    out
}

/// One message inside of another, as alternatives have it.
fn within(number: u32, message: Message) -> Message {
    let mut out = Message::default();
    out.message(number, message);
    out
}

fn texts(value: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, value);
    out
}

fn info(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, &value["title"]);
    out.text(2, &value["version"]);
    out
}

fn security(value: &Value) -> Message {
    let mut key = Message::default();
    for (number, field) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
        key.text(number, &value[field]);
    }
    within(2, key)
}

fn path(value: &Value) -> Message {
    const METHODS: [(u32, &str); 7] =
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")];
    let mut out = Message::default();
    for (number, method) in METHODS {
        out.optional(number, value.get(method), operation);
    }
    items(&value["parameters"]).iter().for_each(|value| out.message(9, parameter_or_reference(value)));
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, &value["tags"]);
    out.text(3, &value["description"]);
    out.text(5, &value["operationId"]);
    out.texts(6, &value["produces"]);
    out.texts(7, &value["consumes"]);
    items(&value["parameters"]).iter().for_each(|value| out.message(8, parameter_or_reference(value)));
    out.message(9, named(1, &value["responses"], |value| within(1, response(value))));
    out.texts(10, &value["schemes"]);
    out.extensions(13, value);
    out
}

fn response(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, &value["description"]);
    out.optional(2, value.get("schema"), |value| within(1, schema(value)));
    out
}

fn parameter_or_reference(value: &Value) -> Message {
    match value.get("$ref") {
        Some(reference) => {
            let mut out = Message::default();
            out.text(1, reference);
            within(2, out)
        }
        None => within(1, parameter(value)),
    }
}

fn parameter(value: &Value) -> Message {
    match value["in"].as_str() {
        Some("body") => within(1, body(value)),
        Some("query") => within(2, within(3, plain(value, [6, 20]))),
        _ => within(2, within(4, plain(value, [5, 19]))),
    }
}

fn body(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, &value["description"]);
    out.text(2, &value["name"]);
    out.text(3, &value["in"]);
    out.flag(4, &value["required"]);
    out.optional(5, value.get("schema"), schema);
    out
}

/// A parameter of a query or a path, whose messages differ in two numbers.
fn plain(value: &Value, [ty, unique_items]: [u32; 2]) -> Message {
    let mut out = Message::default();
    out.flag(1, &value["required"]);
    out.text(2, &value["in"]);
    out.text(3, &value["description"]);
    out.text(4, &value["name"]);
    out.text(ty, &value["type"]);
    out.flag(unique_items, &value["uniqueItems"]);
    out
}

fn schema(value: &Value) -> Message {
    let empty = Map::new();
    let fields = value.as_object().unwrap_or(&empty);
    let mut out = Message::default();
    out.text(1, &value["$ref"]);
    out.text(2, &value["format"]);
    out.text(4, &value["description"]);
    out.texts(19, &value["required"]);
    out.optional(21, fields.get("additionalProperties"), |value| within(1, schema(value)));
    out.optional(22, fields.get("type"), |value| {
        let mut out = Message::default();
        out.text(1, value);
        out
    });
    out.optional(23, fields.get("items"), |value| within(1, schema(value)));
    out.optional(25, fields.get("properties"), |value| named(1, value, schema));
    out.extensions(31, value);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_has_the_numbers_of_gnostic() {
        let value = json!({"type": "string", "required": ["a"], "x-y": 1});
        let want = b"\x9a\x01\x01a\xb2\x01\x08\x0a\x06string\xfa\x01\x0b\x0a\x03x-y\x12\x04\x12\x021\n";
        assert_eq!(schema(&value).0, want);
    }

    #[test]
    fn the_whole_document_is_one_message_of_known_fields() {
        let document = super::super::v2();
        let bytes = encode(&document);
        let (mut at, mut numbers) = (0, Vec::new());
        while at < bytes.len() {
            let mut varint = || {
                let mut value = 0;
                for shift in (0..).step_by(7) {
                    let byte = bytes[at];
                    at += 1;
                    value |= usize::from(byte & 0x7f) << shift;
                    if byte < 0x80 {
                        break;
                    }
                }
                value
            };
            let (key, length) = (varint(), varint());
            assert_eq!(key & 7, 2);
            numbers.push(key >> 3);
            at += length;
        }
        assert_eq!((at, numbers), (bytes.len(), vec![1, 2, 8, 9, 10, 12, 13]));
    }
}
