//! Kubernetes protobuf, both ways, driven by the tables.
//!
//! [`encode_object`], [`list_item`] and [`encode_watch_event`] write what upstream writes, byte for byte; [`decode_object`]
//! reads what any client sends into the canonical object, never panics, and bounds depth and memory.

mod decode;
mod encode;
mod envelope;

use formats::wire;

use crate::{
    Map, Value,
    budget::{Budget, Exceeded},
    json,
    schema::{ApiSchema, Resource, TypeId, schema},
};

pub use envelope::{MAGIC, Unknown};

/// How deep messages may be nested.
const MAX_DEPTH: usize = 128;

/// Why bytes cannot be read as protobuf.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The envelope's first bytes are missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// Bytes that are no fields.
    #[error(transparent)]
    Wire(#[from] wire::Error),
    /// There is nothing.
    #[error("empty data")]
    Empty,
    /// There is nothing after the first bytes of an envelope.
    #[error("empty body")]
    EmptyBody,
    /// A field with the wrong wire type.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// What was sent.
        wire: u8,
        /// The field as Go names it.
        field: String,
    },
    /// A value that its type does not allow.
    #[error("{message}")]
    Value {
        /// The field.
        path: &'static str,
        /// What is wrong.
        message: String,
    },
    /// A kind that the schema does not have, or that has no protobuf.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// What the envelope says.
        api_version: String,
        /// What the envelope says.
        kind: String,
    },
    /// Compressed or the like.
    #[error("the content encoding {0:?} is not supported")]
    Encoding(String),
    /// Nested too deeply.
    #[error("the object is nested more than {MAX_DEPTH} messages deep")]
    Depth,
    /// Too many bytes.
    #[error("Request entity too large: limit is {}", json::MAX_SIZE)]
    Size,
    /// Too much memory.
    #[error(transparent)]
    Memory(#[from] Exceeded),
    /// JSON within the object cannot be read.
    #[error(transparent)]
    Json(#[from] json::Error),
}

/// The object of a resource in an envelope. The object's own `apiVersion` and `kind` count, where it has them and the
/// schema knows them: a subresource answers with another kind.
pub fn encode_object(resource: &Resource, object: &Value) -> Vec<u8> {
    if let Some(bytes) = encode_any(object) {
        return bytes;
    }
    let mut raw = Vec::new();
    encode::structure(&mut raw, schema().get(resource.ty), object.as_object());
    envelope::seal(&resource.api_version(), resource.kind, &raw)
}

/// An object that says its `apiVersion` and `kind`, in an envelope; `None` if the kind has no protobuf.
pub fn encode_any(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let ty = type_of(schema(), api_version, kind)?;
    Some(envelope::seal(api_version, kind, &encode_as(ty, object)))
}

/// A message of a type, without an envelope.
pub fn encode_as(ty: TypeId, object: &Value) -> Vec<u8> {
    let mut raw = Vec::new();
    encode::structure(&mut raw, schema().get(ty), object.as_object());
    raw
}

/// An object as an item of a list.
pub fn list_item(resource: &Resource, item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    wire::message(&mut out, 2, |out| encode::structure(out, schema().get(resource.ty), item.as_object()));
    out
}

/// What comes before and after the items of a list, which are so many bytes; `metadata` is the list's.
pub fn around_list(resource: &Resource, metadata: &Value, length: usize) -> (Vec<u8>, Vec<u8>) {
    let mut first = Vec::new();
    if let Some(ty) = schema().type_named("meta/v1.ListMeta") {
        wire::message(&mut first, 1, |out| encode::structure(out, schema().get(ty), metadata.as_object()));
    }
    let kind = format!("{}List", resource.kind);
    let (mut head, tail) = envelope::around(&resource.api_version(), &kind, first.len() + length);
    head.extend_from_slice(&first);
    (head, tail)
}

/// A watch event, without an envelope, as it stands in a frame of a watch; the object is in an envelope of its own.
pub fn encode_watch_event(kind: &str, object: &Value) -> Vec<u8> {
    let inner = encode_any(object).unwrap_or_else(|| object.to_string().into_bytes());
    let mut out = Vec::with_capacity(inner.len() + 32);
    wire::bytes(&mut out, 1, kind.as_bytes());
    wire::message(&mut out, 2, |out| wire::bytes(out, 1, &inner));
    out
}

/// A message as a watch carries it: four bytes of length, most significant first, then the message.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], message].concat()
}

/// The object in an envelope, canonical, with `apiVersion` and `kind`.
pub fn decode_object(bytes: &[u8]) -> Result<Value, Error> {
    decode_enveloped(bytes, &mut Budget::default(), 0)
}

/// What an envelope holds, without decoding the object.
pub fn open(bytes: &[u8]) -> Result<Unknown<'_>, Error> {
    if bytes.len() > json::MAX_SIZE {
        return Err(Error::Size);
    }
    envelope::open(bytes)
}

/// A message of a type, without an envelope.
pub fn decode_as(ty: TypeId, raw: &[u8]) -> Result<Value, Error> {
    if raw.len() > json::MAX_SIZE {
        return Err(Error::Size);
    }
    let map = decode::Decoder::new(&mut Budget::default()).whole(schema().get(ty), raw, 0)?;
    Ok(Value::Object(map))
}

/// The type and the object of a watch event.
pub fn decode_watch_event(message: &[u8]) -> Result<(String, Value), Error> {
    let ty = schema().type_named("meta/v1.WatchEvent").ok_or_else(|| unknown("v1", "WatchEvent"))?;
    let mut event = decode_as(ty, message)?;
    Ok((event["type"].as_str().unwrap_or_default().to_owned(), event["object"].take()))
}

fn decode_enveloped(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<Value, Error> {
    let unknown_object = open(bytes)?;
    let Unknown { api_version, kind, raw, .. } = &unknown_object;
    if !unknown_object.encoding.is_empty() {
        return Err(Error::Encoding(unknown_object.encoding.clone()));
    }
    if unknown_object.content_type == "application/json" {
        return Ok(json::parse_within(raw, budget)?);
    }
    let ty = type_of(schema(), api_version, kind).ok_or_else(|| unknown(api_version, kind))?;
    let mut map: Map = decode::Decoder::new(budget).whole(schema().get(ty), raw, depth)?;
    map.insert("apiVersion".to_owned(), api_version.as_str().into());
    map.insert("kind".to_owned(), kind.as_str().into());
    Ok(Value::Object(map))
}

/// The type of a kind that has protobuf.
fn type_of(schema: &ApiSchema, api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let id = schema.type_of_kind(group, version, kind)?;
    let ty = schema.get(id);
    (ty.fields.is_empty() || !ty.slots.is_empty()).then_some(id)
}

fn unknown(api_version: &str, kind: &str) -> Error {
    Error::Kind { api_version: api_version.to_owned(), kind: kind.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::canonical;

    #[test]
    fn lists_are_lists_of_their_kind() {
        let pods = schema().resource("", "v1", "pods").unwrap();
        let pod = canonical(pods.ty, json!({"metadata": {"name": "a"}})).unwrap().object;
        let item = list_item(pods, &pod);
        let (head, tail) = around_list(pods, &json!({"resourceVersion": "7"}), 2 * item.len());
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
        assert_eq!(frame(&[1, 2]), [0, 0, 0, 2, 1, 2]);
    }

    #[test]
    fn schemas_keep_their_shapes() {
        let given = json!({"items": [{"type": "string"}], "additionalProperties": {"type": "integer"}, "additionalItems": false,
            "dependencies": {"a": ["b", "c"], "d": {"maximum": 1.5}}, "default": {"x": [1, null]}, "enum": [1, "a"]});
        let ty = schema().type_named("apiextensions/v1.JSONSchemaProps").unwrap();
        assert_eq!(decode_as(ty, &encode_as(ty, &given)).unwrap(), given);
    }

    #[test]
    fn what_is_not_set_is_written_as_upstream_writes_it() {
        let ty = schema().type_named("meta/v1.ObjectMeta").unwrap();
        let want = b"\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
        assert_eq!(encode_as(ty, &json!({})), want);
        let list = schema().type_named("meta/v1.APIResource").unwrap();
        let bytes = encode_as(list, &json!({"verbs": ["get"]}));
        assert!(bytes.windows(7).any(|part| part == b"\x22\x05\x0a\x03get"), "verbs are in a message of their own");
    }

    #[test]
    fn tables_have_no_protobuf() {
        assert_eq!(encode_any(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table"})), None);
        assert_eq!(encode_any(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})), None);
    }

    #[test]
    fn hostile_bytes_are_refused() {
        assert_eq!(decode_object(b"{}"), Err(Error::Prefix));
        let ty = schema().type_named("core/v1.Pod").unwrap();
        assert_eq!(decode_as(ty, b"\x0a\x05a"), Err(wire::Error::End.into()));
        assert_eq!(decode_as(ty, b"\x9b\x06\x9c\x06"), decode_as(ty, b""), "groups are skipped");
        let schema_type = schema().type_named("apiextensions/v1.JSONSchemaProps").unwrap();
        let mut deep = Vec::new();
        for _ in 0..1000 {
            let mut outer = Vec::new();
            wire::bytes(&mut outer, 28, &deep);
            deep = outer;
        }
        assert_eq!(decode_as(schema_type, &deep), Err(Error::Depth));
        let spec = schema().type_named("core/v1.PodSpec").unwrap();
        assert_eq!(decode_as(spec, &[0x12, 0].repeat(1_000_000)), Err(Error::Memory(Exceeded)));
    }
}
