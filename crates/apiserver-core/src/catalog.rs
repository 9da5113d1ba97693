//! What the store's cache must know of Kubernetes: which collection a key is in, and what selectors look at in a document.
//!
//! Labels and selectable fields are read once, without building the object, when a document enters the cache. A document
//! is in the version that it was written in; a field that only another version has is read from the converted object.

mod scan;

use std::{collections::HashMap, sync::LazyLock};

use api::{
    Value, convert, meta,
    schema::{Resource, SelectableField, schema},
};
use bytes::Bytes;
use store::SelectableFields;

use self::scan::{Found, Paths};
use crate::{document, document::TypeMetaPrefix, initializers};

/// What is there while an object waits for initializers.
const PENDING: &str = "metadata.initializers";

/// The built-in resources, as the cache sees them.
pub struct Catalog {
    /// By the prefix of their keys.
    rows: HashMap<String, Row>,
}

/// One collection of documents.
struct Row {
    /// The names of all fields that selectors know in any version, in the order of the marks.
    fields: Vec<&'static str>,
    versions: Vec<Version>,
}

/// The documents of a collection that were written in one version.
struct Version {
    resource: &'static Resource,
    tail: TypeMetaPrefix,
    /// Where the labels and the paths of the fields are.
    paths: Paths,
    /// For each field of the row, where its value comes from.
    sources: Vec<Source>,
}

/// Where the value of a field comes from.
enum Source {
    /// From the first of these places that has one, or else this text.
    Places(Vec<usize>, &'static str),
    /// From the object in another version.
    Converted(&'static Resource, SelectableField),
}

/// The catalog of the built-in resources.
pub fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::new);
    &CATALOG
}

/// The same, where something of its own is wanted.
pub struct BuiltIn;

impl store::CollectionCatalog for BuiltIn {
    fn collection_name<'k>(&self, key: &'k str) -> Option<&'k str> {
        collection(key)
    }

    fn selectable_fields(&self, key: &str, value: &Bytes) -> SelectableFields {
        let row = collection(key).and_then(|name| catalog().rows.get(name));
        row.map_or_else(|| labels_only(value), |row| row.marks(value))
    }
}

/// `/registry/pods/` of a core resource, `/registry/apps/deployments/` of any other.
fn collection(key: &str) -> Option<&str> {
    let path = key.strip_prefix("/registry/")?;
    let first = path.find('/')?;
    let end = if catalog().rows.contains_key(&key[..key.len() - path.len() + first + 1]) {
        first
    } else {
        first + 1 + path[first + 1..].find('/')?
    };
    Some(&key[..key.len() - path.len() + end + 1])
}

impl Catalog {
    fn new() -> Self {
        let mut rows: HashMap<String, Vec<&'static Resource>> = HashMap::new();
        for resource in schema().resources() {
            rows.entry(document::storage_key(resource, "", "")).or_default().push(resource);
        }
        Self { rows: rows.into_iter().map(|(key, resources)| (key, Row::of(&resources))).collect() }
    }

    /// The place of what says that an object waits for initializers; `None`: there are none.
    pub fn pending(&self, resource: &Resource) -> Option<usize> {
        initializers::enabled().then(|| self.place(resource, PENDING))?
    }

    /// The place of a resource's field among the marks of its documents.
    pub fn place(&self, resource: &Resource, field: &str) -> Option<usize> {
        let row = self.rows.get(&document::storage_key(resource, "", ""))?;
        row.fields.iter().position(|name| *name == field)
    }
}

impl Row {
    fn of(resources: &[&'static Resource]) -> Self {
        let mut fields: Vec<&'static str> = Vec::new();
        for field in resources.iter().flat_map(|resource| &resource.selectable_fields) {
            if !fields.contains(&field.name) {
                fields.push(field.name);
            }
        }
        fields.extend(initializers::enabled().then_some(PENDING));
        let versions = resources.iter().map(|resource| Version::of(resource, &fields, resources)).collect();
        Self { fields, versions }
    }

    fn marks(&self, value: &Bytes) -> SelectableFields {
        let version = self.versions.iter().find(|version| version.tail.matches_document(value));
        let found = version.and_then(|version| version.marks(value));
        found.unwrap_or_else(|| self.marks_of_object(value))
    }

    /// Of a document that is in another form than ours.
    fn marks_of_object(&self, value: &Bytes) -> SelectableFields {
        let object = match document::decode_document(value, 0) {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(%error, "a stored document cannot be read; no selector finds it");
                return SelectableFields::default();
            }
        };
        let text = |name: &&str| {
            if *name == PENDING {
                return initializers::is_pending(&object).then(|| PENDING.to_owned());
            }
            let known = |version: &Version| Some((version.resource, version.resource.selectable_field(name)?.clone()));
            let (resource, field) = self.versions.iter().find_map(known)?;
            Some(field.value_of(&convert::convert_to(resource, object.clone())))
        };
        let fields: Vec<String> = self.fields.iter().map(|name| text(name).unwrap_or_default()).collect();
        marks(&object, &fields)
    }
}

impl Version {
    fn of(resource: &'static Resource, fields: &[&'static str], all: &[&'static Resource]) -> Self {
        let mut paths = Paths::default();
        let mut source = |name: &&'static str| {
            if *name == PENDING {
                return Some(Source::Places(vec![paths.add(PENDING)], ""));
            }
            if let Some(field) = resource.selectable_field(name) {
                return Some(Source::Places(
                    field.paths.iter().map(|path| paths.add(path)).collect(),
                    field.default_value,
                ));
            }
            let known =
                |other: &&'static Resource| Some(Source::Converted(other, other.selectable_field(name)?.clone()));
            all.iter().find_map(known)
        };
        let sources = fields.iter().filter_map(&mut source).collect();
        Self { resource, tail: TypeMetaPrefix::for_resource(resource), paths, sources }
    }

    /// `None` if the document is not JSON.
    fn marks(&self, value: &Bytes) -> Option<SelectableFields> {
        let Found { labels, texts } = self.paths.scan(value)?;
        let mut object = None;
        let mut fields = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            fields.push(match source {
                Source::Places(places, absent) => {
                    let first = places.iter().find_map(|place| texts.get(*place)?.clone());
                    first.unwrap_or((*absent).into())
                }
                Source::Converted(resource, field) => {
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

/// Of a document that no row is for.
fn labels_only(value: &Bytes) -> SelectableFields {
    static LABELS: LazyLock<Paths> = LazyLock::new(Paths::default);
    if let Some(Found { labels, .. }) = LABELS.scan(value) {
        return SelectableFields::new(labels.iter().map(|(name, value)| (&**name, &**value)), std::iter::empty());
    }
    document::decode_document(value, 0).map(|object| marks(&object, &[])).unwrap_or_default()
}

fn marks(object: &Value, fields: &[String]) -> SelectableFields {
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
            let marks = BuiltIn.selectable_fields(key, &stored);
            assert_eq!(label.map(|(name, _)| marks.label(name)), label.map(|(_, value)| Some(value)));
            for (name, value) in fields {
                let place = catalog().place(resource, name).or_else(|| {
                    let other = schema().resource("events.k8s.io", "v1", "events").unwrap();
                    catalog().place(other, name)
                });
                assert_eq!(marks.field(place.expect(name)), *value, "{name}");
            }
        }
    }

    #[test]
    fn marks_are_labels_and_declared_fields() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "labels": {"app": "w\"b"}},
            "spec": {"nodeName": "n1", "hostNetwork": true, "containers": [{"name": "c", "image": "spec"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}]}});
        let fields =
            [("spec.nodeName", "n1"), ("spec.hostNetwork", "true"), ("status.phase", "Running"), ("status.podIP", "")];
        check("/registry/pods/n/p", &pod, Some(("app", "w\"b")), &fields);
    }

    #[test]
    fn an_event_has_the_fields_of_both_its_versions() {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet"}, "type": "Normal"});
        let fields = [("involvedObject.name", "p"), ("regarding.name", "p"), ("source", "kubelet"), ("type", "Normal")];
        check("/registry/events/n/e", &event, None, &fields);
    }

    #[test]
    fn collections_end_with_their_resource() {
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
            assert_eq!(BuiltIn.collection_name(key), name, "{key}");
        }
    }
}
