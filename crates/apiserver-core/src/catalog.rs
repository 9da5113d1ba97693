//! The catalog of collections for the watch cache: the collection of a key, and the selectable fields of a document.
//!
//! Labels and selectable fields are read once, without building the object, when a document enters the cache. A
//! document is in its storage version; a field that only another version has is read from the converted object.

mod scan;

use std::{collections::HashMap, sync::LazyLock};

use api::{
    Value, convert, meta,
    schema::{Resource, SelectableField, schema},
};
use bytes::Bytes;
use store::SelectableFields;

use self::scan::{PathSet, ScannedValues};
use crate::{
    document::{self, TypeMetaPrefix},
    initializers,
};

/// The field that is present while an object waits for initializers.
const PENDING_FIELD: &str = "metadata.initializers";

/// The collections of the built-in resources.
pub struct ResourceCatalog {
    /// By key prefix.
    collections: HashMap<String, Collection>,
}

/// A collection of documents.
struct Collection {
    /// The selectable fields of all versions, in the order of [`SelectableFields`].
    fields: Vec<&'static str>,
    versions: Vec<StorageVersion>,
}

/// The documents of a collection in one storage version.
struct StorageVersion {
    resource: &'static Resource,
    prefix: TypeMetaPrefix,
    /// Paths of the labels and fields.
    paths: PathSet,
    /// The source of each of the collection's fields.
    sources: Vec<FieldSource>,
}

/// The source of a field's value.
enum FieldSource {
    /// The first of these paths with a value, or else the default.
    Paths(Vec<usize>, &'static str),
    /// The object in another version.
    Converted(&'static Resource, SelectableField),
}

/// Returns the catalog of the built-in resources.
pub fn catalog() -> &'static ResourceCatalog {
    static CATALOG: LazyLock<ResourceCatalog> = LazyLock::new(ResourceCatalog::new);
    &CATALOG
}

/// The catalog as the watch cache takes it.
pub struct BuiltInCatalog;

impl store::CollectionCatalog for BuiltInCatalog {
    fn collection_name<'k>(&self, key: &'k str) -> Option<&'k str> {
        collection_prefix(key)
    }

    fn selectable_fields(&self, key: &str, value: &Bytes) -> SelectableFields {
        let collection = collection_prefix(key).and_then(|prefix| catalog().collections.get(prefix));
        collection.map_or_else(|| labels_only(value), |collection| collection.selectable_fields(value))
    }
}

/// Returns the prefix of a key's collection: `/registry/pods/` in the core group, `/registry/apps/deployments/` in
/// others.
fn collection_prefix(key: &str) -> Option<&str> {
    let path = key.strip_prefix("/registry/")?;
    let first = path.find('/')?;
    let end = if catalog().collections.contains_key(&key[..key.len() - path.len() + first + 1]) {
        first
    } else {
        first + 1 + path[first + 1..].find('/')?
    };
    Some(&key[..key.len() - path.len() + end + 1])
}

impl ResourceCatalog {
    fn new() -> Self {
        let mut collections: HashMap<String, Vec<&'static Resource>> = HashMap::new();
        for resource in schema().resources() {
            collections.entry(document::storage_key(resource, "", "")).or_default().push(resource);
        }
        Self {
            collections: collections.into_iter().map(|(key, resources)| (key, Collection::new(&resources))).collect(),
        }
    }

    /// The index of [`PENDING_FIELD`] among the fields of a resource; `None` without initializers.
    pub fn pending_field_index(&self, resource: &Resource) -> Option<usize> {
        initializers::is_enabled().then(|| self.field_index(resource, PENDING_FIELD))?
    }

    /// The index of a field among the selectable fields of a resource.
    pub fn field_index(&self, resource: &Resource, field: &str) -> Option<usize> {
        let collection = self.collections.get(&document::storage_key(resource, "", ""))?;
        collection.fields.iter().position(|name| *name == field)
    }
}

impl Collection {
    fn new(resources: &[&'static Resource]) -> Self {
        let mut fields: Vec<&'static str> = Vec::new();
        for field in resources.iter().flat_map(|resource| &resource.selectable_fields) {
            if !fields.contains(&field.name) {
                fields.push(field.name);
            }
        }
        fields.extend(initializers::is_enabled().then_some(PENDING_FIELD));
        let versions = resources.iter().map(|resource| StorageVersion::new(resource, &fields, resources)).collect();
        Self { fields, versions }
    }

    fn selectable_fields(&self, value: &Bytes) -> SelectableFields {
        let version = self.versions.iter().find(|version| version.prefix.matches_document(value));
        let fields = version.and_then(|version| version.scan_selectable_fields(value));
        fields.unwrap_or_else(|| self.decode_selectable_fields(value))
    }

    /// Reads the fields of a document in another encoding than ours.
    fn decode_selectable_fields(&self, value: &Bytes) -> SelectableFields {
        let object = match document::decode_document(value, 0) {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(%error, "watch cache: cannot decode a stored document, selectors do not match it");
                return SelectableFields::default();
            }
        };
        let text = |name: &&str| {
            if *name == PENDING_FIELD {
                return initializers::is_pending(&object).then(|| PENDING_FIELD.to_owned());
            }
            let known =
                |version: &StorageVersion| Some((version.resource, version.resource.selectable_field(name)?.clone()));
            let (resource, field) = self.versions.iter().find_map(known)?;
            Some(field.value_of(&convert::convert_to(resource, object.clone())))
        };
        let fields: Vec<String> = self.fields.iter().map(|name| text(name).unwrap_or_default()).collect();
        fields_of_object(&object, &fields)
    }
}

impl StorageVersion {
    fn new(resource: &'static Resource, fields: &[&'static str], all: &[&'static Resource]) -> Self {
        let mut paths = PathSet::default();
        let mut source = |name: &&'static str| {
            if *name == PENDING_FIELD {
                return Some(FieldSource::Paths(vec![paths.add_path(PENDING_FIELD)], ""));
            }
            if let Some(field) = resource.selectable_field(name) {
                return Some(FieldSource::Paths(
                    field.paths.iter().map(|path| paths.add_path(path)).collect(),
                    field.default_value,
                ));
            }
            let known =
                |other: &&'static Resource| Some(FieldSource::Converted(other, other.selectable_field(name)?.clone()));
            all.iter().find_map(known)
        };
        let sources = fields.iter().filter_map(&mut source).collect();
        Self { resource, prefix: TypeMetaPrefix::for_resource(resource), paths, sources }
    }

    /// `None` if the document is not JSON.
    fn scan_selectable_fields(&self, value: &Bytes) -> Option<SelectableFields> {
        let ScannedValues { labels, values: texts } = self.paths.scan_document(value)?;
        let mut object = None;
        let mut fields = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            fields.push(match source {
                FieldSource::Paths(indexes, absent) => {
                    let first = indexes.iter().find_map(|index| texts.get(*index)?.clone());
                    first.unwrap_or((*absent).into())
                }
                FieldSource::Converted(resource, field) => {
                    let object = object.get_or_insert_with(|| document::decode_document(value, 0).unwrap_or_default());
                    field.value_of(&convert::convert_to(resource, object.clone())).into()
                }
            });
        }
        Some(SelectableFields::new(
            labels.iter().map(|(name, value)| (&**name, &**value)),
            fields.iter().map(|text| &**text),
        ))
    }
}

/// Reads the labels of a document of an unknown collection.
fn labels_only(value: &Bytes) -> SelectableFields {
    static LABELS: LazyLock<PathSet> = LazyLock::new(PathSet::default);
    if let Some(ScannedValues { labels, .. }) = LABELS.scan_document(value) {
        return SelectableFields::new(labels.iter().map(|(name, value)| (&**name, &**value)), std::iter::empty());
    }
    document::decode_document(value, 0).map(|object| fields_of_object(&object, &[])).unwrap_or_default()
}

fn fields_of_object(object: &Value, fields: &[String]) -> SelectableFields {
    let labels = meta::value_at(object, &["metadata", "labels"]).and_then(Value::as_object);
    let labels: Vec<(&str, &str)> =
        labels.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect();
    SelectableFields::new(labels.into_iter(), fields.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::CollectionCatalog as _;

    use super::*;

    fn check(key: &str, object: &Value, label: Option<(&str, &str)>, fields: &[(&str, &str)]) {
        let version = meta::string_at(object, &["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let plural = key.split('/').rev().nth(2).unwrap();
        let resource = schema().resource(group, version, plural).unwrap();
        for stored in [document::encode_document(object), api::protobuf::encode_object(resource, object).into()] {
            let selectable = BuiltInCatalog.selectable_fields(key, &stored);
            assert_eq!(label.map(|(name, _)| selectable.label(name)), label.map(|(_, value)| Some(value)));
            for (name, value) in fields {
                let index = catalog().field_index(resource, name).or_else(|| {
                    let other = schema().resource("events.k8s.io", "v1", "events").unwrap();
                    catalog().field_index(other, name)
                });
                assert_eq!(selectable.field(index.expect(name)), *value, "{name}");
            }
        }
    }

    #[test]
    fn labels_and_selectable_fields_are_read() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "w\"b"}},
            "spec": {"nodeName": "n1", "hostNetwork": true, "containers": [{"name": "c", "image": "spec"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}]}});
        let fields =
            [("spec.nodeName", "n1"), ("spec.hostNetwork", "true"), ("status.phase", "Running"), ("status.podIP", "")];
        check("/registry/pods/n/p", &pod, Some(("app", "w\"b")), &fields);
    }

    #[test]
    fn events_have_the_fields_of_both_versions() {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet"}, "type": "Normal"});
        let fields = [("involvedObject.name", "p"), ("regarding.name", "p"), ("source", "kubelet"), ("type", "Normal")];
        check("/registry/events/n/e", &event, None, &fields);
    }

    #[test]
    fn collection_prefix_ends_with_the_resource() {
        for (key, name) in [
            ("/registry/pods/", Some("/registry/pods/")),
            ("/registry/pods/n/p", Some("/registry/pods/")),
            ("/registry/nodes/n", Some("/registry/nodes/")),
            ("/registry/apps/deployments/n/d", Some("/registry/apps/deployments/")),
            ("/registry/example.com/boats/n/b", Some("/registry/example.com/boats/")),
            ("/registry/", None),
            ("/registry/pods", None),
            ("", None),
        ] {
            assert_eq!(BuiltInCatalog.collection_name(key), name, "{key}");
        }
    }
}
