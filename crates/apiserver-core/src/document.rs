//! Stored documents: the JSON that clients receive, without the resource version.
//!
//! Keys are in upstream's order: `kind` and `apiVersion` first, then the fields of Go's structs. The resource version is
//! spliced in behind the UID when a document is read, and list items leave out the type meta: a response is a copy of bytes,
//! never a new encoding. Only this module knows these positions.

use std::sync::LazyLock;

use api::{
    Value, defaults, json_encoder, meta, protobuf,
    schema::{FieldType, Resource, schema},
};
use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem::Finder;
use store::{Record, Revision};

/// The start of documents that have the metadata first, as earlier versions wrote them.
const METADATA_FIRST: &[u8] = b"{\"metadata\":{";
/// The position of the UID: no string in front of it can contain these bytes, for its quotes are escaped.
static UID: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\",\"uid\":\""));
/// The UID is behind names only, so it is not searched further than this.
const MAX_UID_POSITION: usize = 2048;

/// Top-level fields of an object with the JSON that the client sent for them.
pub type RawExtensions = Vec<(&'static str, String)>;

/// Encodes an object for the store.
pub fn encode_document(object: &Value) -> Bytes {
    encode_with(object, &RawExtensions::default())
}

/// Encodes an object for the store with raw fields as the client sent them, where they have the same value.
pub fn encode_with(object: &Value, raw: &RawExtensions) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    let ty = json_encoder::declared_type(object);
    out.push(b'{');
    let map = object.as_object();
    for (name, field, value) in map.into_iter().flat_map(|map| json_encoder::ordered_fields(ty, map)) {
        write_key(&mut out, name);
        let as_sent = raw
            .iter()
            .find(|(known, text)| *known == name && serde_json::from_str::<Value>(text).ok().as_ref() == Some(value));
        match (as_sent, value) {
            (Some((_, text)), _) => out.extend_from_slice(text.as_bytes()),
            (None, Value::Object(metadata)) if name == "metadata" => {
                let ty = field.and_then(|field| if let FieldType::Struct(id) = field.ty { Some(id) } else { None });
                out.push(b'{');
                for (name, field, value) in json_encoder::ordered_fields(ty, metadata) {
                    if name != "resourceVersion" {
                        write_key(&mut out, name);
                        json_encoder::write_value(&mut out, field, field.map(|field| &field.ty), value);
                    }
                }
                out.push(b'}');
            }
            (None, value) => json_encoder::write_value(&mut out, field, field.map(|field| &field.ty), value),
        }
    }
    out.push(b'}');
    out.into()
}

/// Writes a key, with the comma before it where it is not the first.
fn write_key(out: &mut Vec<u8>, name: &str) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    json_encoder::write_string(out, name);
    out.push(b':');
}

/// The start of documents that can be sent as they are stored: kind and version of a resource.
pub struct TypeMetaPrefix(String);

impl TypeMetaPrefix {
    /// The prefix of the documents of a resource in its own version.
    pub fn for_resource(resource: &Resource) -> Self {
        // Neither has characters that JSON escapes.
        Self(format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", resource.kind, resource.api_version()))
    }

    /// Whether a document is in the version of the resource and complete. Those of kube-apiserver end with a newline and
    /// lack defaults.
    pub fn matches_document(&self, value: &Bytes) -> bool {
        value.starts_with(self.0.as_bytes()) && !value.ends_with(b"\n")
    }

    /// Appends a document as an item of a list: without type meta, which the list has.
    pub fn append_item(&self, out: &mut BytesMut, value: &Bytes, revision: Revision) {
        out.put_u8(b'{');
        append_spliced(out, value, self.0.len(), revision);
    }
}

/// Returns the body of a response: the document with its resource version, and a newline.
pub fn encode_response(value: &Bytes, revision: Revision) -> Bytes {
    let mut out = BytesMut::with_capacity(value.len() + 48);
    append_response(&mut out, value, revision);
    out.put_u8(b'\n');
    out.freeze()
}

/// Appends a document with its resource version.
pub fn append_response(out: &mut BytesMut, value: &Bytes, revision: Revision) {
    append_spliced(out, value, 0, revision);
}

/// Appends a document from `start` on, with the resource version behind its UID.
fn append_spliced(out: &mut BytesMut, value: &Bytes, start: usize, revision: Revision) {
    out.reserve(value.len() + 48);
    let position = uid_end(value).unwrap_or_else(|| metadata_start(value));
    let is_first = value[..position].ends_with(b"{");
    out.put_slice(&value[start..position]);
    out.put_slice(if is_first { b"\"resourceVersion\":\"" } else { b",\"resourceVersion\":\"" });
    out.put_slice(revision.to_string().as_bytes());
    out.put_u8(b'"');
    if is_first && value.get(position) != Some(&b'}') {
        out.put_u8(b',');
    }
    out.put_slice(&value[position..]);
}

/// Returns the position behind the UID of a document.
fn uid_end(value: &Bytes) -> Option<usize> {
    let start = UID.find(&value[..value.len().min(MAX_UID_POSITION)])? + UID.needle().len();
    memchr::memchr(b'"', &value[start..]).map(|length| start + length + 1)
}

/// Returns the position of the first metadata field, for objects without a UID.
fn metadata_start(value: &Bytes) -> usize {
    const METADATA: &[u8] = b"\"metadata\":{";
    memchr::memmem::find(value, METADATA).map_or(value.len(), |start| start + METADATA.len())
}

/// Decodes a stored document and sets its resource version.
pub fn decode_document(value: &Bytes, revision: Revision) -> Result<Value, store::StoreError> {
    // kube-apiserver writes protobuf; an etcd that it filled is read as it is.
    let mut object = if value.starts_with(protobuf::MAGIC) {
        protobuf::decode_object(value)
            .map_err(|error| store::StoreError::Unusable(format!("a stored document is not protobuf: {error}")))?
    } else {
        serde_json::from_slice(value)
            .map_err(|error| store::StoreError::Unusable(format!("a stored document is not JSON: {error}")))?
    };
    if !is_complete(value) {
        apply_stored_defaults(&mut object);
    }
    meta::metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    Ok(object)
}

/// Whether a document was written with all defaults; kube-apiserver's protobuf, and JSON with a newline, lack them.
fn is_complete(value: &Bytes) -> bool {
    value.starts_with(METADATA_FIRST) || value.starts_with(b"{") && !value.ends_with(b"\n")
}

/// Applies the defaults that kube-apiserver leaves out of stored documents and applies on reads.
fn apply_stored_defaults(object: &mut Value) {
    let version = meta::string_at(object, &["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    if let Some(ty) = schema().type_of_kind(group, version, meta::string_at(object, &["kind"])) {
        defaults::apply_defaults(ty, object);
    }
}

/// Decodes a record.
pub fn decode_record(record: &Record) -> Result<Value, store::StoreError> {
    decode_document(&record.value, record.revision)
}

/// Returns `/registry/<group>/<resource>/<namespace>/<name>`; an empty name gives the prefix of a collection.
pub fn storage_key(resource: &Resource, namespace: &str, name: &str) -> String {
    let (group, plural) = resource.storage_resource();
    let mut key = String::from("/registry/");
    for part in [group, plural] {
        if !part.is_empty() {
            key.push_str(part);
            key.push('/');
        }
    }
    if !namespace.is_empty() {
        key.push_str(namespace);
        key.push('/');
    }
    key + name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_document(object: Value, want_document: &str, want_response: &str) {
        let stored = encode_document(&object);
        assert_eq!(String::from_utf8_lossy(&stored), want_document);
        assert_eq!(String::from_utf8_lossy(&encode_response(&stored, 7)), format!("{want_response}\n"));
        let mut want = object.clone();
        want["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(decode_document(&stored, 7).unwrap(), want);
        let prefix = TypeMetaPrefix::for_resource(schema().resource("", "v1", "configmaps").unwrap());
        assert!(prefix.matches_document(&stored));
        let mut item = BytesMut::new();
        prefix.append_item(&mut item, &stored, 7);
        want.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
        assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), want);
    }

    #[test]
    fn resource_version_is_spliced_in_behind_the_uid() {
        check_document(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "\",\"uid\":\""},
                "metadata": {"uid": "u", "labels": {"uid": "l"}, "name": "a", "resourceVersion": "1", "namespace": "n"}}),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","labels":{"uid":"l"}},"data":{"x":"\",\"uid\":\""}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"uid":"l"}},"data":{"x":"\",\"uid\":\""}}"#,
        );
    }

    #[test]
    fn objects_without_a_uid_have_a_resource_version_too() {
        check_document(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a"}}"#,
        );
    }

    #[test]
    fn documents_with_the_metadata_first_are_read() {
        let stored = Bytes::from_static(br#"{"metadata":{"name":"a"},"apiVersion":"v1","kind":"ConfigMap"}"#);
        let prefix = TypeMetaPrefix::for_resource(schema().resource("", "v1", "configmaps").unwrap());
        assert!(!prefix.matches_document(&stored));
        assert_eq!(decode_document(&stored, 7).unwrap()["metadata"], json!({"name": "a", "resourceVersion": "7"}));
    }

    #[test]
    fn documents_of_kube_apiserver_are_read() {
        let resource = api::schema::schema().resource("", "v1", "configmaps").unwrap();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}});
        let stored = Bytes::from(protobuf::encode_object(resource, &object));
        assert!(!TypeMetaPrefix::for_resource(resource).matches_document(&stored), "it is never sent as it is");
        let read = decode_document(&stored, 7).unwrap();
        assert_eq!((&read["data"]["x"], &read["metadata"]["resourceVersion"]), (&json!("y"), &json!("7")));
    }

    #[test]
    fn keys_follow_group_resource_namespace_name() {
        let schema = api::schema::schema();
        assert_eq!(storage_key(schema.resource("", "v1", "pods").unwrap(), "ns", "p"), "/registry/pods/ns/p");
        assert_eq!(
            storage_key(schema.resource("apps", "v1", "deployments").unwrap(), "", ""),
            "/registry/apps/deployments/"
        );
    }
}
