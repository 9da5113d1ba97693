//! The stored form of an object: JSON that begins with its metadata, without the revision.
//!
//! The revision is put in when the document is read, at a fixed place, and version and kind are at its end, where a list
//! leaves them out: an answer is a copy of bytes and never a new encoding. Only this module knows those places.

use api::{
    Value, defaults, meta, protobuf,
    schema::{Resource, schema},
};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use store::{Record, Revision};

const HEAD: &[u8] = b"{\"metadata\":{";

/// Fields of an object, and JSON for them in words of its writer's choice.
pub type RawExtensions = Vec<(&'static str, String)>;

/// Encodes an object for the store. Its `metadata` is not empty: it has a name.
pub fn encode_document(object: &Value) -> Bytes {
    encode_with(object, &RawExtensions::default())
}

/// The same with some fields in other words, as long as they mean what is there.
pub fn encode_with(object: &Value, words: &RawExtensions) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"metadata\":{");
    write_fields(&mut out, object.get("metadata"), &["resourceVersion"], &[]);
    out.push(b'}');
    write_fields(&mut out, Some(object), &["metadata", "apiVersion", "kind"], words);
    out.extend_from_slice(
        tail(meta::string_at(object, &["apiVersion"]), meta::string_at(object, &["kind"])).as_bytes(),
    );
    out.into()
}

/// How a document of a version and kind ends. Neither has characters that JSON escapes.
fn tail(version: &str, kind: &str) -> String {
    format!(",\"apiVersion\":\"{version}\",\"kind\":\"{kind}\"}}")
}

/// The ends of documents that can be sent as they are to who asks for a resource.
pub struct TypeMetaSuffix(String);

impl TypeMetaSuffix {
    /// The end of the documents of a resource in its own version.
    pub fn for_resource(resource: &Resource) -> Self {
        Self(tail(&resource.api_version(), resource.kind))
    }

    /// Whether a document is in the resource's version.
    pub fn matches_document(&self, value: &Bytes) -> bool {
        value.ends_with(self.0.as_bytes())
    }

    /// Appends a document as an item of a list: without version and kind, which the list has.
    pub fn append_item(&self, out: &mut BytesMut, value: &Bytes, revision: Revision) {
        append_response(out, &value.slice(..value.len() - self.0.len()), revision);
        out.put_u8(b'}');
    }
}

/// The fields of an object, but for some of them.
fn write_fields(out: &mut Vec<u8>, object: Option<&Value>, without: &[&str], words: &[(&str, String)]) {
    let fields = object.and_then(Value::as_object).into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| !without.contains(&name.as_str())) {
        if !out.ends_with(b"{") {
            out.push(b',');
        }
        write(out, name);
        out.push(b':');
        match words
            .iter()
            .find(|(known, text)| known == name && serde_json::from_str(text).ok().as_ref() == Some(value))
        {
            Some((_, text)) => out.extend_from_slice(text.as_bytes()),
            None => write(out, value),
        }
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    // Values have text keys and memory does not fail to be written.
    serde_json::to_writer(out, value).expect("JSON values can be written");
}

/// The JSON that a client gets.
pub fn encode_response(value: &Bytes, revision: Revision) -> Bytes {
    let mut out = BytesMut::with_capacity(value.len() + 48);
    append_response(&mut out, value, revision);
    out.freeze()
}

/// Appends the JSON that a client gets.
pub fn append_response(out: &mut BytesMut, value: &Bytes, revision: Revision) {
    match value.strip_prefix(HEAD) {
        Some(rest) => {
            out.reserve(value.len() + 48);
            out.put_slice(HEAD);
            out.put_slice(b"\"resourceVersion\":\"");
            out.put_slice(revision.to_string().as_bytes());
            out.put_slice(b"\",");
            out.put_slice(rest);
        }
        None => out.put_slice(value),
    }
}

/// Reads a stored document back, revision included.
pub fn decode_document(value: &Bytes, revision: Revision) -> Result<Value, store::StoreError> {
    // kube-apiserver writes protobuf; an etcd that it filled is read as it is.
    let mut object = if value.starts_with(protobuf::MAGIC) {
        protobuf::decode_object(value)
            .map_err(|error| store::StoreError::Unusable(format!("a stored document is not protobuf: {error}")))?
    } else {
        serde_json::from_slice(value)
            .map_err(|error| store::StoreError::Unusable(format!("a stored document is not JSON: {error}")))?
    };
    if !value.starts_with(HEAD) {
        complete(&mut object);
    }
    meta::metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    Ok(object)
}

/// Fills in what kube-apiserver leaves out of what it writes and fills in when it reads.
fn complete(object: &mut Value) {
    let version = meta::string_at(object, &["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    if let Some(ty) = schema().type_of_kind(group, version, meta::string_at(object, &["kind"])) {
        defaults::apply_defaults(ty, object);
    }
}

/// Reads a record back.
pub fn decode_record(record: &Record) -> Result<Value, store::StoreError> {
    decode_document(&record.value, record.revision)
}

/// `/registry/<group>/<resource>/<namespace>/<name>`; an empty name gives the prefix of a collection.
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

    #[test]
    fn the_revision_is_put_in_when_read() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "1"}, "data": {"x": "y"}});
        let stored = encode_document(&object);
        assert!(!String::from_utf8_lossy(&stored).contains("resourceVersion"));
        let mut want = object.clone();
        want["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(serde_json::from_slice::<Value>(&encode_response(&stored, 7)).unwrap(), want);
        assert_eq!(decode_document(&stored, 7).unwrap(), want);
        let tail = TypeMetaSuffix::for_resource(api::schema::schema().resource("", "v1", "configmaps").unwrap());
        assert!(tail.matches_document(&stored));
        let mut item = BytesMut::new();
        tail.append_item(&mut item, &stored, 7);
        assert_eq!(
            serde_json::from_slice::<Value>(&item).unwrap(),
            json!({"metadata": want["metadata"], "data": {"x": "y"}})
        );
    }

    #[test]
    fn documents_of_kube_apiserver_are_read_too() {
        let resource = api::schema::schema().resource("", "v1", "configmaps").unwrap();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}});
        let stored = Bytes::from(protobuf::encode_object(resource, &object));
        assert!(!TypeMetaSuffix::for_resource(resource).matches_document(&stored), "it is never sent as it is");
        let read = decode_document(&stored, 7).unwrap();
        assert_eq!((&read["data"]["x"], &read["metadata"]["resourceVersion"]), (&json!("y"), &json!("7")));
    }

    #[test]
    fn keys_follow_group_resource_namespace_name() {
        let schema = api::schema::schema();
        assert_eq!(storage_key(schema.resource("", "v1", "pods").unwrap(), "ns", "p"), "/registry/pods/ns/p");
        assert_eq!(storage_key(schema.resource("apps", "v1", "deployments").unwrap(), "", ""), "/registry/apps/deployments/");
    }
}
