//! A definition as the server uses it: the names that were accepted, its versions, and the rows that they make.

mod faults;
mod scale;
mod version;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use api::{
    Value, meta,
    schema::{Resource, ResourceScope, SelectableField, Subresource, intern_name, schema},
    validate::FieldError,
};
use bytes::Bytes;
pub use scale::Scale;
pub use version::{Version, order as version_order};

use crate::{columns::Printer, default, prune, rules, schema::Node};

/// What may be done with custom resources, in the order in which upstream tells it.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const PART: &[&str] = &["get", "patch", "update"];

/// A definition.
#[derive(Debug)]
pub struct Definition {
    /// Another number for each that was read.
    pub serial: u64,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    generation: i64,
    /// The group of the resource.
    pub group: &'static str,
    /// The plural name.
    pub plural: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// The kind of objects.
    pub kind: &'static str,
    /// The kind of lists.
    pub list_kind: &'static str,
    short_names: Vec<&'static str>,
    categories: Vec<&'static str>,
    scope: ResourceScope,
    /// In the order of the definition.
    pub versions: Vec<Part>,
    /// Which version is stored.
    pub stored: usize,
    /// How versions are made of each other.
    pub conversion: Conversion,
    /// It is being deleted: nothing new may be created.
    pub terminating: bool,
    /// The definition in JSON, shared with the store's cache.
    document: Bytes,
    hash: OnceLock<String>,
}

/// One version of a definition.
#[derive(Debug)]
pub struct Part {
    /// For example `v1beta1`.
    pub name: &'static str,
    /// Whether it is served.
    pub served: bool,
    /// Who uses it is told so.
    pub deprecated: bool,
    warning: Option<String>,
    status: bool,
    scale: Option<Scale>,
    fields: Vec<SelectableField>,
    made: OnceLock<Made>,
}

/// What is made of the document when it is first needed.
#[derive(Debug)]
struct Made {
    schema: Arc<Node>,
    printer: Printer,
}

/// How versions are made of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Only the name of the version differs.
    None,
    /// Somebody else does it: the configuration of the webhook.
    Webhook(Arc<Value>),
}

impl Definition {
    /// Reads a definition whose names were accepted; `None` if they were not, or it cannot be read.
    pub fn new(object: &Value, document: &Bytes) -> Option<Self> {
        let (spec, accepted) = (object.get("spec")?, meta::value_at(object, &["status", "acceptedNames"])?);
        let name =
            |field: &str| Some(meta::string_at(accepted, &[field])).filter(|name| !name.is_empty()).map(intern_name);
        let names = |field: &str| texts(accepted, field).map(intern_name).collect();
        let versions = spec.get("versions")?.as_array()?;
        let conversion = match meta::string_at(spec, &["conversion", "strategy"]) {
            "Webhook" => Conversion::Webhook(Arc::new(spec["conversion"]["webhook"].clone())),
            _ => Conversion::None,
        };
        let kind = name("kind")?;
        let group = intern_name(meta::string_at(spec, &["group"]));
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        Some(Self {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            name: meta::name(object).to_owned(),
            uid: meta::uid(object).to_owned(),
            generation: meta::integer_at(object, &["metadata", "generation"]),
            group,
            plural: name("plural")?,
            singular: name("singular")?,
            kind,
            list_kind: name("listKind")?,
            short_names: names("shortNames"),
            categories: names("categories"),
            scope: if meta::string_at(spec, &["scope"]) == "Cluster" {
                ResourceScope::Cluster
            } else {
                ResourceScope::Namespaced
            },
            stored: versions.iter().position(|version| version["storage"] == true)?,
            versions: versions.iter().map(|version| Part::new(version, (group, kind), versions)).collect(),
            conversion,
            terminating: is_true(object, "Terminating"),
            document: if document.starts_with(b"{") { document.clone() } else { object.to_string().into() },
            hash: OnceLock::new(),
        })
    }

    /// Whether a stored definition is the same in all that rows are made of. Its generation grows with every other change.
    pub fn is_same(&self, object: &Value) -> bool {
        let accepted = &object["status"]["acceptedNames"];
        let name = |field: &str| meta::string_at(object, &["status", "acceptedNames", field]);
        self.uid == meta::uid(object)
            && self.generation == meta::integer_at(object, &["metadata", "generation"])
            && self.terminating == is_true(object, "Terminating")
            && [self.kind, self.list_kind, self.singular] == ["kind", "listKind", "singular"].map(name)
            && texts(accepted, "shortNames").eq(self.short_names.iter().copied())
            && texts(accepted, "categories").eq(self.categories.iter().copied())
    }

    /// Whether another state of the same definition makes the same rows, whether it is being deleted or not.
    pub fn is_like(&self, other: &Self) -> bool {
        let names = |one: &Self| [one.kind, one.list_kind, one.singular];
        // Its generation grows also when it is to be deleted.
        let same = || self.generation == other.generation || self.parsed()["spec"] == other.parsed()["spec"];
        self.uid == other.uid
            && names(self) == names(other)
            && self.short_names == other.short_names
            && self.categories == other.categories
            && same()
    }

    /// The rows of the versions that are served.
    pub fn rows(self: &Arc<Self>) -> Vec<Arc<Resource>> {
        let served = self.versions.iter().enumerate().filter(|(_, version)| version.served);
        served.map(|(at, _)| self.row(at)).collect()
    }

    /// The row of a version, served or not.
    pub fn row(self: &Arc<Self>, at: usize) -> Arc<Resource> {
        let version = &self.versions[at];
        // What tables know of every object.
        let ty = schema().type_named("meta/v1.PartialObjectMetadata").or_else(|| schema().type_named("meta/v1.Status"));
        let ty = ty.expect("the tables have the types of meta/v1");
        let mut row = Resource::new(self.group, version.name, self.plural, self.kind, ty);
        row.singular = self.singular;
        row.scope = self.scope;
        row.verbs = VERBS.to_vec();
        row.short_names.clone_from(&self.short_names);
        row.categories.clone_from(&self.categories);
        row.tracks_generation = true;
        row.requires_resource_version = true;
        row.status_only = true;
        row.storage_version = (self.group, self.versions[self.stored].name);
        row.selectable_fields.clone_from(&version.fields);
        let part = |name, kind, group_version| Subresource { name, kind, group_version, verbs: PART.to_vec() };
        if version.status {
            row.subresources.push(part("status", self.kind, None));
        }
        if version.scale.is_some() {
            row.subresources.push(part("scale", "Scale", Some(("autoscaling", "v1"))));
        }
        row.custom_schema = Some(Arc::new(Version { definition: self.clone(), at }));
        Arc::new(row)
    }

    /// A version by name.
    pub fn position(&self, version: &str) -> Option<usize> {
        self.versions.iter().position(|known| known.name == version)
    }

    /// `example.com/v1`
    pub fn api_version(&self, at: usize) -> String {
        format!("{}/{}", self.group, self.versions[at].name)
    }

    /// The version that an object says it is of.
    fn version_of(&self, api_version: &str) -> Option<usize> {
        let (group, version) = api_version.split_once('/')?;
        self.position(version).filter(|_| group == self.group)
    }

    /// A stored object as the schema of its own version has it by now.
    pub fn refreshed(&self, mut object: Value) -> Value {
        if let Some(at) = self.version_of(meta::string_at(&object, &["apiVersion"])) {
            let node = self.schema(at);
            // What cannot be coerced stays as it is: it was written under another schema.
            let _ = prune::prune(node, &mut object);
            default::default(node, &mut object);
        }
        object
    }

    /// An object in a version, by name alone, without what that version does not know.
    pub fn renamed(&self, mut object: Value, at: usize) -> Value {
        meta::object_mut(&mut object).insert("apiVersion".into(), self.api_version(at).into());
        let _ = prune::prune(self.schema(at), &mut object);
        object
    }

    /// The schema of a version.
    pub fn schema(&self, at: usize) -> &Arc<Node> {
        &self.made(at).schema
    }

    /// A version as the definition has it.
    pub fn described(&self, at: usize) -> Value {
        self.parsed()["spec"]["versions"][at].take()
    }

    /// A hash of all that it says.
    pub fn hash(&self) -> &str {
        self.hash.get_or_init(|| api::discovery::CachedDocument::new(self.document.clone()).hash)
    }

    fn parsed(&self) -> Value {
        // The document was read before.
        serde_json::from_slice(&self.document).unwrap_or_default()
    }

    fn made(&self, at: usize) -> &Made {
        self.versions[at].made.get_or_init(|| {
            let version = self.described(at);
            let schema = meta::value_at(&version, &["schema", "openAPIV3Schema"]).unwrap_or(&Value::Null);
            Made { schema: Arc::new(crate::schema::parse(schema)), printer: Printer::new(&version) }
        })
    }
}

impl Part {
    fn new(version: &Value, kind: (&str, &str), all: &[Value]) -> Self {
        let flag = |name: &str| version.get(name).and_then(Value::as_bool).unwrap_or_default();
        let scale = meta::value_at(version, &["subresources", "scale"]).filter(|scale| scale.is_object());
        let path = |field: &Value| {
            let path = intern_name(meta::string_at(field, &["jsonPath"]).trim_start_matches('.'));
            SelectableField { name: path, paths: vec![path], default_value: "" }
        };
        Self {
            name: intern_name(meta::string_at(version, &["name"])),
            served: flag("served"),
            deprecated: flag("deprecated"),
            warning: flag("deprecated").then(|| version::warning(version, kind, all)),
            status: meta::value_at(version, &["subresources", "status"]).is_some_and(Value::is_object),
            scale: scale.map(Scale::new),
            fields: meta::list_at(version, &["selectableFields"]).iter().map(path).collect(),
            made: OnceLock::new(),
        }
    }
}

fn texts<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    value.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a condition of an object is true.
fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = meta::list_at(object, &["status", "conditions"]);
    conditions
        .iter()
        .any(|one| meta::string_at(one, &["type"]) == condition && meta::string_at(one, &["status"]) == "True")
}

/// The faults of a definition that can only be found with CEL. What did not change is let pass.
pub fn check(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let versions = |object: &'_ Value| meta::list_at(object, &["spec", "versions"]).to_vec();
    let (new, before) = (versions(object), old.map(versions).unwrap_or_default());
    let schema = |version: &Value| meta::value_at(version, &["schema", "openAPIV3Schema"]).cloned();
    let known: Vec<Value> = before.iter().filter_map(schema).collect();
    let schemas: Vec<Option<Value>> = new.iter().map(schema).collect();
    // What all versions have alike stands once, above them.
    let shared = schemas.windows(2).all(|pair| pair[0] == pair[1]);
    let mut errors = Vec::new();
    for (at, schema) in schemas.iter().enumerate().take(if shared { 1 } else { usize::MAX }) {
        let Some(schema) = schema.as_ref().filter(|schema| !known.contains(schema)) else { continue };
        let place = match shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{at}].schema.openAPIV3Schema"),
        };
        errors.extend(rules::check(&Arc::new(crate::schema::parse(schema)), &place));
    }
    errors
}
