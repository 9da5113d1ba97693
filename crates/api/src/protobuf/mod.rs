//! Kubernetes protobuf encoding and decoding, driven by the schema.
//!
//! [`encode_object`], [`encode_list_item`] and [`encode_watch_event`] produce upstream's bytes; [`decode_object`] decodes
//! client input into the canonical object, never panics, and bounds depth and memory.

mod decode;
mod encode;
mod envelope;

use formats::wire;

use crate::{
    Map, Value,
    budget::{MemoryBudget, OverBudget},
    json,
    schema::{ApiSchema, Resource, TypeId, schema},
};

pub use envelope::{MAGIC, UnknownObject};

/// The maximum nesting depth of messages.
const MAX_DEPTH: usize = 128;

/// Bytes that cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The magic prefix is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// The wire format is malformed.
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    /// The input is empty.
    #[error("empty data")]
    Empty,
    /// The envelope is empty.
    #[error("empty body")]
    EmptyBody,
    /// A field has the wrong wire type.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// The wire type sent.
        wire: u8,
        /// The Go field name.
        field: String,
    },
    /// A value is invalid for its type.
    #[error("{message}")]
    Value {
        /// The field.
        path: &'static str,
        /// The message.
        message: String,
    },
    /// The kind is unknown or has no protobuf encoding.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// The `apiVersion` of the envelope.
        api_version: String,
        /// The `kind` of the envelope.
        kind: String,
    },
    /// The content encoding is not supported.
    #[error("the content encoding {0:?} is not supported")]
    Encoding(String),
    /// Nested too deeply.
    #[error("the object is nested more than {MAX_DEPTH} messages deep")]
    Depth,
    /// The input is too large.
    #[error("Request entity too large: limit is {}", json::MAX_SIZE)]
    Size,
    /// The memory budget is exceeded.
    #[error(transparent)]
    Memory(#[from] OverBudget),
    /// Embedded JSON is malformed.
    #[error(transparent)]
    Json(#[from] json::JsonError),
}

/// Encodes an object of a resource in an envelope. A known `apiVersion` and `kind` of the object take precedence:
/// subresources respond with other kinds.
pub fn encode_object(resource: &Resource, object: &Value) -> Vec<u8> {
    if let Some(bytes) = encode_declared(object) {
        return bytes;
    }
    let mut raw = Vec::new();
    encode::encode_struct(&mut raw, schema().get(resource.ty), object.as_object());
    envelope::seal_envelope(&resource.api_version(), resource.kind, &raw)
}

/// Encodes an object by its own `apiVersion` and `kind`; `None` if the kind has no protobuf encoding.
pub fn encode_declared(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let ty = protobuf_type(schema(), api_version, kind)?;
    Some(envelope::seal_envelope(api_version, kind, &encode_as(ty, object)))
}

/// Encodes a message of a type without an envelope.
pub fn encode_as(ty: TypeId, object: &Value) -> Vec<u8> {
    let mut raw = Vec::new();
    encode::encode_struct(&mut raw, schema().get(ty), object.as_object());
    raw
}

/// Encodes an object as an item of a list.
pub fn encode_list_item(resource: &Resource, item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_message(&mut out, 2, |out| encode::encode_struct(out, schema().get(resource.ty), item.as_object()));
    out
}

/// Returns the bytes before and after the items of a list, given their length; `metadata` is the list's.
pub fn list_envelope(resource: &Resource, metadata: &Value, length: usize) -> (Vec<u8>, Vec<u8>) {
    let mut first = Vec::new();
    if let Some(ty) = schema().type_named("meta/v1.ListMeta") {
        wire::put_message(&mut first, 1, |out| encode::encode_struct(out, schema().get(ty), metadata.as_object()));
    }
    let kind = format!("{}List", resource.kind);
    let (mut head, tail) = envelope::envelope_around(&resource.api_version(), &kind, first.len() + length);
    head.extend_from_slice(&first);
    (head, tail)
}

/// Encodes a watch event without an envelope, for a frame; its object has an envelope.
pub fn encode_watch_event(kind: &str, object: &Value) -> Vec<u8> {
    let inner = encode_declared(object).unwrap_or_else(|| object.to_string().into_bytes());
    let mut out = Vec::with_capacity(inner.len() + 32);
    wire::put_bytes(&mut out, 1, kind.as_bytes());
    wire::put_message(&mut out, 2, |out| wire::put_bytes(out, 1, &inner));
    out
}

/// Frames a message for a watch stream: four bytes of big-endian length, then the message.
pub fn encode_frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], message].concat()
}

/// Decodes the object in an envelope, canonical, with `apiVersion` and `kind`.
pub fn decode_object(bytes: &[u8]) -> Result<Value, ProtobufError> {
    decode_enveloped(bytes, &mut MemoryBudget::default(), 0)
}

/// Opens an envelope without decoding the object.
pub fn open_object(bytes: &[u8]) -> Result<UnknownObject<'_>, ProtobufError> {
    if bytes.len() > json::MAX_SIZE {
        return Err(ProtobufError::Size);
    }
    envelope::open_envelope(bytes)
}

/// Decodes a message of a type without an envelope.
pub fn decode_as(ty: TypeId, raw: &[u8]) -> Result<Value, ProtobufError> {
    if raw.len() > json::MAX_SIZE {
        return Err(ProtobufError::Size);
    }
    let map = decode::MessageDecoder::new(&mut MemoryBudget::default(), 0).decode_struct(schema().get(ty), raw)?;
    Ok(Value::Object(map))
}

/// Decodes a watch event into its type and object.
pub fn decode_watch_event(message: &[u8]) -> Result<(String, Value), ProtobufError> {
    let ty = schema().type_named("meta/v1.WatchEvent").ok_or_else(|| unknown_kind("v1", "WatchEvent"))?;
    let mut event = decode_as(ty, message)?;
    Ok((event["type"].as_str().unwrap_or_default().to_owned(), event["object"].take()))
}

fn decode_enveloped(bytes: &[u8], budget: &mut MemoryBudget, depth: usize) -> Result<Value, ProtobufError> {
    let unknown_object = open_object(bytes)?;
    let UnknownObject { api_version, kind, raw, .. } = &unknown_object;
    if !unknown_object.encoding.is_empty() {
        return Err(ProtobufError::Encoding(unknown_object.encoding.clone()));
    }
    if unknown_object.content_type == "application/json" {
        return Ok(json::parse_within(raw, budget)?);
    }
    let ty = protobuf_type(schema(), api_version, kind).ok_or_else(|| unknown_kind(api_version, kind))?;
    let mut map: Map = decode::MessageDecoder::new(budget, depth).decode_struct(schema().get(ty), raw)?;
    map.insert("apiVersion".to_owned(), api_version.as_str().into());
    map.insert("kind".to_owned(), kind.as_str().into());
    Ok(Value::Object(map))
}

/// Returns the type of a kind with a protobuf encoding.
fn protobuf_type(schema: &ApiSchema, api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let id = schema.type_of_kind(group, version, kind)?;
    let ty = schema.get(id);
    (ty.fields.is_empty() || !ty.slots.is_empty()).then_some(id)
}

fn unknown_kind(api_version: &str, kind: &str) -> ProtobufError {
    ProtobufError::Kind { api_version: api_version.to_owned(), kind: kind.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::canonicalize;

    #[test]
    fn list_envelope_names_the_list_kind() {
        let pods = schema().resource("", "v1", "pods").unwrap();
        let pod = canonicalize(pods.ty, json!({"metadata": {"name": "a"}})).unwrap().object;
        let item = encode_list_item(pods, &pod);
        let (head, tail) = list_envelope(pods, &json!({"resourceVersion": "7"}), 2 * item.len());
        let bytes = [&head[..], &item, &item, &tail].concat();
        let want =
            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [pod, pod]});
        assert_eq!(decode_object(&bytes).unwrap(), want);
        for (_, ty) in
            schema().types().filter(|(_, ty)| ty.short_name().ends_with("List") && ty.field("items").is_some())
        {
            let number = |name| ty.field(name).and_then(|field| field.number);
            assert_eq!((number("metadata"), number("items")), (Some(1), Some(2)), "{}", ty.name);
        }
    }

    #[test]
    fn watch_events_carry_envelopes() {
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "code": 410});
        let bytes = encode_watch_event("ERROR", &status);
        assert_eq!(decode_watch_event(&bytes).unwrap(), ("ERROR".to_owned(), status));
        assert_eq!(encode_frame(&[1, 2]), [0, 0, 0, 2, 1, 2]);
    }

    #[test]
    fn json_schema_shapes_round_trip() {
        let given = json!({"items": [{"type": "string"}], "additionalProperties": {"type": "integer"}, "additionalItems": false,
            "dependencies": {"a": ["b", "c"], "d": {"maximum": 1.5}}, "default": {"x": [1, null]}, "enum": [1, "a"]});
        let ty = schema().type_named("apiextensions/v1.JSONSchemaProps").unwrap();
        assert_eq!(decode_as(ty, &encode_as(ty, &given)).unwrap(), given);
    }

    #[test]
    fn unset_fields_are_encoded_like_upstream() {
        let ty = schema().type_named("meta/v1.ObjectMeta").unwrap();
        let want = b"\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
        assert_eq!(encode_as(ty, &json!({})), want);
        let list = schema().type_named("meta/v1.APIResource").unwrap();
        let bytes = encode_as(list, &json!({"verbs": ["get"]}));
        assert!(bytes.windows(7).any(|part| part == b"\x22\x05\x0a\x03get"), "verbs are in a message of their own");
    }

    #[test]
    fn tables_have_no_protobuf() {
        assert_eq!(encode_declared(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table"})), None);
        assert_eq!(encode_declared(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})), None);
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        assert_eq!(decode_object(b"{}"), Err(ProtobufError::Prefix));
        let ty = schema().type_named("core/v1.Pod").unwrap();
        assert_eq!(decode_as(ty, b"\x0a\x05a"), Err(wire::WireError::End.into()));
        assert_eq!(decode_as(ty, b"\x9b\x06\x9c\x06"), decode_as(ty, b""), "groups are skipped");
        let schema_type = schema().type_named("apiextensions/v1.JSONSchemaProps").unwrap();
        let mut deep = Vec::new();
        for _ in 0..1000 {
            let mut outer = Vec::new();
            wire::put_bytes(&mut outer, 28, &deep);
            deep = outer;
        }
        assert_eq!(decode_as(schema_type, &deep), Err(ProtobufError::Depth));
        let spec = schema().type_named("core/v1.PodSpec").unwrap();
        assert_eq!(decode_as(spec, &[0x12, 0].repeat(1_000_000)), Err(ProtobufError::Memory(OverBudget)));
    }
}
