//! Encodes watch events: determines the event type by the selectors and encodes the object.
//!
//! A change is encoded once per encoding and event type and shared by all watches.

use std::{collections::HashMap, sync::Arc};

use api::{Value, apply, convert, json_encoder, meta, protobuf, status::Status};
use apiextensions::crd_version;
use apiserver_core::{
    document::{self, TypeMetaPrefix},
    negotiation::{MediaTypeOptions, ResponseEncoding, ResponseTransform},
    request::ResourceRequest,
};
use bytes::{BufMut, Bytes, BytesMut};
use registry::{Registry, selection::SelectionPredicate};
use serde_json::json;
use store::{CachedChange, CachedItem, Revision};

use crate::encode;

/// Encodes the events of one watch.
pub(super) struct EventEncoder {
    target: ResourceRequest,
    form: MediaTypeOptions,
    selection: SelectionPredicate,
    tail: TypeMetaPrefix,
    /// The keys of shared encodings; `None` if encodings are not shared.
    shared: Option<CacheKeys>,
    /// Whether the column definitions were sent.
    has_columns: bool,
    /// The registry, if a conversion webhook converts the objects.
    converter: Option<Arc<Registry>>,
    /// Converted objects of the current batch, by buffer address.
    converted: HashMap<usize, Value>,
}

/// Keys of encodings that watches share.
#[derive(Clone)]
struct CacheKeys {
    /// Key of a change, by event type.
    changes: [Arc<str>; 3],
    /// Key of a batch.
    batches: Arc<str>,
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

impl CacheKeys {
    fn for_request(target: &ResourceRequest, form: MediaTypeOptions) -> Self {
        let MediaTypeOptions { encoding, transform: shape, version, .. } = form;
        // A CRD may change under the same name.
        let serial = crd_version(&target.resource).map_or(0, |version| version.crd.serial);
        let own = target.resource.api_version();
        let name = format!("{} {shape:?} {version:?} {own} {serial}", encoding.media_type());
        let selector = |name| target.query.get(name).unwrap_or_default();
        let (labels, fields) = (selector("labelSelector"), selector("fieldSelector"));
        Self {
            changes: [EventType::Added, EventType::Modified, EventType::Deleted]
                .map(|kind| format!("{} {name}", kind.as_str()).into()),
            batches: format!("{name} {:?} {labels:?} {fields:?}", target.name).into(),
        }
    }
}

impl EventEncoder {
    pub fn new(target: ResourceRequest, form: MediaTypeOptions, selection: SelectionPredicate) -> Self {
        // Table rows have an age, which differs between requests.
        let same_for_all = !matches!(form.transform, ResponseTransform::Table(_));
        let shared = same_for_all.then(|| CacheKeys::for_request(&target, form));
        let tail = TypeMetaPrefix::for_resource(&target.resource);
        Self { target, form, selection, tail, shared, has_columns: false, converter: None, converted: HashMap::new() }
    }

    /// Enables conversion through the webhook, if the resource has one.
    pub fn converted_by(mut self, registry: &Arc<Registry>) -> Self {
        if apiextensions::CustomResourceDefinitions::is_converted_by_webhook(&self.target.resource) {
            (self.converter, self.shared) = (Some(registry.clone()), None);
        }
        self
    }

    /// Whether [`Self::convert_items`] must be called before encoding.
    pub fn needs_conversion(&self) -> bool {
        self.converter.is_some()
    }

    /// Converts the documents of the next batch.
    pub async fn convert_items(&mut self, mut items: Vec<Arc<CachedItem>>) -> Result<(), store::StoreError> {
        let Some(converter) = self.converter.clone() else { return Ok(()) };
        items.retain(|item| self.selection.may_match(item));
        let stored = items.iter().map(|item| document::decode_record(&item.record)).collect::<Result<Vec<_>, _>>()?;
        let shown = converter.crds().convert_stored(&self.target.resource, stored).await;
        let shown = shown.map_err(|status| store::StoreError::Unusable(status.message))?;
        self.converted = items.iter().map(|item| buffer_address(&item.record.value)).zip(shown).collect();
        Ok(())
    }

    /// The key under which equal watches share batches.
    pub fn batch_key(&self) -> Option<&Arc<str>> {
        self.shared.as_ref().map(|names| &names.batches)
    }

    /// Whether the selectors match an object.
    pub fn is_selected(&self, item: &CachedItem) -> bool {
        self.selection.is_everything()
            || match self.converted.get(&buffer_address(&item.record.value)) {
                Some(object) => self.selection.matches_converted(item, object),
                None => self.selection.matches(item),
            }
    }

    /// Encodes an existing object as ADDED.
    pub fn encode_existing(&mut self, item: &CachedItem) -> Result<Bytes, store::StoreError> {
        self.encode_event(EventType::Added, &item.record.value, item.record.revision)
    }

    /// Encodes a change; `None` if the selectors match neither state.
    pub fn encode_change(&mut self, change: &CachedChange) -> Result<Option<Bytes>, store::StoreError> {
        let previous = change.previous.as_ref().filter(|item| self.is_selected(item));
        let item = change.item.as_ref().filter(|item| self.is_selected(item));
        let (kind, item) = match (previous, item) {
            (None, Some(item)) => (EventType::Added, item),
            (Some(_), Some(item)) => (EventType::Modified, item),
            // The last matching state, with the revision of the change.
            (Some(previous), None) => (EventType::Deleted, previous),
            (None, None) => return Ok(None),
        };
        let shared = self.shared.clone();
        let mut write = || self.encode_event(kind, &item.record.value, change.revision);
        match &shared {
            Some(shared) => change.encoded(&shared.changes[kind as usize], write).map(Some),
            None => write().map(Some),
        }
    }

    fn encode_event(&mut self, kind: EventType, value: &Bytes, revision: Revision) -> Result<Bytes, store::StoreError> {
        if self.form.is_plain() && self.target.resource.custom_schema.is_none() && self.tail.matches_document(value) {
            return Ok(json_line(kind.as_str(), value.len() + 48, |out| {
                document::append_response(out, value, revision)
            }));
        }
        let object = match self.converted.get(&buffer_address(value)) {
            Some(object) => {
                let mut object = object.clone();
                meta::metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
                object
            }
            None => convert::convert_to(&self.target.resource, document::decode_document(value, revision)?),
        };
        let shown = self.transform_object(object);
        Ok(self.encode_line(kind.as_str(), &shown))
    }

    /// Transforms an object; only the first table has column definitions.
    fn transform_object(&mut self, object: Value) -> Value {
        let mut shown = encode::transform_object(&self.target, self.form, object);
        if shown["kind"] == "Table" && std::mem::replace(&mut self.has_columns, true) {
            shown["columnDefinitions"] = Value::Null;
        }
        shown
    }

    /// Encodes a bookmark.
    pub fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        // An empty object of the kind.
        let mut object = apply::ApplyTarget::for_resource(&self.target.resource, "").blank_object();
        object["metadata"] = metadata;
        let shown = self.transform_object(object);
        self.encode_line("BOOKMARK", &shown)
    }

    /// Encodes an ERROR event.
    pub fn encode_error(&self, error: &store::StoreError) -> Bytes {
        let status = match error {
            store::StoreError::Compacted { requested, oldest } => {
                Status::resource_expired(format!("too old resource version: {requested} ({oldest})"))
            }
            store::StoreError::Future { requested, current } => {
                Status::resource_version_too_large(*requested, *current)
            }
            error => Status::internal_error(error),
        };
        self.encode_line("ERROR", &status.to_value())
    }

    fn encode_line(&self, kind: &str, object: &Value) -> Bytes {
        match self.form.encoding {
            ResponseEncoding::Protobuf => protobuf::encode_frame(&protobuf::encode_watch_event(kind, object)).into(),
            ResponseEncoding::Json | ResponseEncoding::Yaml => {
                let text = json_encoder::encode_object(object);
                json_line(kind, text.len(), |out| out.put_slice(&text))
            }
        }
    }
}

/// Identity key: the buffer's address, unique while the `Bytes` is alive.
fn buffer_address(value: &Bytes) -> usize {
    value.as_ptr() as usize
}

/// `{"type":"ADDED","object":{…}}` and a newline.
fn json_line(kind: &str, length: usize, object: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(length + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    object(&mut out);
    out.put_slice(b"}\n");
    out.freeze()
}
