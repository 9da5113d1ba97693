//! The v2 document in protobuf: the messages of gnostic's `openapi.v2`, listed in `schema/openapi_v2.txt`.
//!
//! Extensions (`x-…`) are kept as YAML text, of which JSON is a subset.

use std::{collections::HashMap, sync::LazyLock};

use formats::wire;

use crate::Value;

const MESSAGE_TABLE: &str = include_str!("../../schema/openapi_v2.txt");

/// A field of a message.
struct MessageField {
    /// The condition; empty if unconditional.
    when: &'static str,
    name: &'static str,
    number: u32,
    /// `text`, `flag`, `yaml` or a message.
    kind: &'static str,
}

static MESSAGES: LazyLock<HashMap<&'static str, Vec<MessageField>>> = LazyLock::new(|| {
    let lines: Vec<&str> = MESSAGE_TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let blocks = lines.chunk_by(|_, line| line.starts_with(' '));
    blocks
        .map(|block| {
            (block[0].trim_end_matches(':'), block[1..].iter().map(|line| MessageField::parse(line)).collect())
        })
        .collect()
});

impl MessageField {
    /// Parses `when ? name: number kind`.
    fn parse(line: &'static str) -> Self {
        let (when, line) = line.trim().split_once(" ? ").unwrap_or(("", line.trim()));
        let (name, rest) = line.split_once(": ").expect("a field has a name");
        let (number, kind) = rest.split_once(' ').unwrap_or((rest, ""));
        Self { when, name, number: number.parse().expect("a field has a number"), kind }
    }

    fn applies_to(&self, value: &Value) -> bool {
        let text = |name: &str| value[name].as_str().unwrap_or_default();
        match (self.when.strip_prefix('!'), self.when.split_once("!="), self.when.split_once('=')) {
            _ if self.when.is_empty() => true,
            (Some(name), ..) => value.get(name).is_none(),
            (_, Some((name, other)), _) => text(name) != other,
            (_, _, Some((name, wanted))) => text(name) == wanted,
            _ => value.get(self.when).is_some(),
        }
    }

    fn encode_field(&self, out: &mut Vec<u8>, value: &Value) {
        match self.name {
            "." => self.encode_value(out, value),
            "[]" => value.as_array().into_iter().flatten().for_each(|item| self.encode_value(out, item)),
            "*" => self.encode_entries(out, value, |_| true, |out, value| encode_message(out, self.kind, value)),
            // Extensions are text in a message.
            "x-" => self.encode_entries(
                out,
                value,
                |name| name.starts_with("x-"),
                |out, value| {
                    wire::put_bytes(out, 2, format!("{value}\n").as_bytes());
                },
            ),
            name => match value.get(name) {
                Some(Value::Array(items)) => items.iter().for_each(|item| self.encode_value(out, item)),
                Some(value) => self.encode_value(out, value),
                None => {}
            },
        }
    }

    /// Encodes one value; empty texts and false flags are omitted.
    fn encode_value(&self, out: &mut Vec<u8>, value: &Value) {
        match (self.kind, value.as_str()) {
            ("text", None | Some("")) => {}
            ("text", Some(text)) => wire::put_bytes(out, self.number, text.as_bytes()),
            ("flag", _) if value == true => wire::put_number(out, self.number, 1),
            ("flag", _) => {}
            ("yaml", _) => {
                wire::put_message(out, self.number, |out| wire::put_bytes(out, 2, format!("{value}\n").as_bytes()));
            }
            (kind, _) => wire::put_message(out, self.number, |out| encode_message(out, kind, value)),
        }
    }

    /// Encodes the entries of a map as messages of name and value.
    fn encode_entries(
        &self,
        out: &mut Vec<u8>,
        value: &Value,
        wanted: impl Fn(&str) -> bool,
        write: impl Fn(&mut Vec<u8>, &Value),
    ) {
        for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| wanted(name)) {
            wire::put_message(out, self.number, |out| {
                wire::put_bytes(out, 1, name.as_bytes());
                wire::put_message(out, 2, |out| write(out, value));
            });
        }
    }
}

/// Encodes the document as a message.
pub(super) fn encode_document(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&mut out, "Document", document);
    out
}

fn encode_message(out: &mut Vec<u8>, kind: &str, value: &Value) {
    MESSAGES[kind].iter().filter(|line| line.applies_to(value)).for_each(|line| line.encode_field(out, value));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_has_gnostic_field_numbers() {
        let value = json!({"type": "string", "required": ["a"], "x-y": 1});
        let want = b"\x9a\x01\x01a\xb2\x01\x08\x0a\x06string\xfa\x01\x0b\x0a\x03x-y\x12\x04\x12\x021\n";
        let mut out = Vec::new();
        encode_message(&mut out, "Schema", &value);
        assert_eq!(out, want);
    }

    #[test]
    fn whole_document_encodes_known_fields_only() {
        let document = super::super::v2_document(crate::discovery::ALL_ENABLED);
        let bytes = encode_document(&document);
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
