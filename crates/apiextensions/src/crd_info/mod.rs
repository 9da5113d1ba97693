//! A CRD as it is served: accepted names, versions, and the API resources of each version.

mod crd_version;
mod object_validation;
mod scale_paths;

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
pub use crd_version::{CrdVersion, compare_versions as version_order};
pub use scale_paths::ScalePaths;
use store::Revision;

use crate::{
    defaulting, is_condition_true, pruning, structural_schema::Structural, table_convertor::TableConvertor,
    validation_rules,
};

/// Verbs of custom resources, in the order of upstream's discovery document.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// A parsed CustomResourceDefinition with accepted names.
#[derive(Debug)]
pub struct CrdInfo {
    /// Unique number of this parsed CRD within the process.
    pub serial: u64,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    generation: i64,
    /// `spec.group`.
    pub group: &'static str,
    /// The accepted plural name.
    pub plural: &'static str,
    /// The accepted singular name.
    pub singular: &'static str,
    /// The accepted kind.
    pub kind: &'static str,
    /// The accepted list kind.
    pub list_kind: &'static str,
    short_names: Vec<&'static str>,
    categories: Vec<&'static str>,
    scope: ResourceScope,
    /// All versions, in the order of `spec.versions`.
    pub versions: Vec<VersionEntry>,
    /// Index of the storage version.
    pub storage_version: usize,
    /// The conversion strategy.
    pub conversion: ConversionStrategy,
    /// Whether the `Terminating` condition is true; instances can no longer be created.
    pub terminating: bool,
    /// Revision from which a CRD with this UID is served; all its instances are newer.
    pub served_since: Revision,
    /// The CRD as JSON, shared with the watch cache.
    document: Bytes,
    hash: OnceLock<String>,
}

/// One entry of `spec.versions`.
#[derive(Debug)]
pub struct VersionEntry {
    /// The version's name, such as `v1beta1`.
    pub name: &'static str,
    /// Whether the version is served.
    pub served: bool,
    /// Whether requests to this version return a deprecation warning.
    pub deprecated: bool,
    warning: Option<String>,
    status: bool,
    scale: Option<ScalePaths>,
    fields: Vec<SelectableField>,
    built: OnceLock<BuiltVersion>,
}

/// The schema and printer columns of a version, built on first use.
#[derive(Debug)]
struct BuiltVersion {
    schema: Arc<Structural>,
    table_convertor: TableConvertor,
}

/// The conversion strategy of a CRD, `spec.conversion.strategy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversionStrategy {
    /// Only `apiVersion` changes.
    None,
    /// A conversion webhook, with its `spec.conversion.webhook` configuration.
    Webhook(Arc<Value>),
}

impl CrdInfo {
    /// Parses a CRD; `None` if it has no accepted names or cannot be parsed.
    pub fn new(object: &Value, document: &Bytes) -> Option<Self> {
        let (spec, accepted) = (object.get("spec")?, meta::value_at(object, &["status", "acceptedNames"])?);
        let name =
            |field: &str| Some(meta::string_at(accepted, &[field])).filter(|name| !name.is_empty()).map(intern_name);
        let names = |field: &str| string_items(accepted, field).map(intern_name).collect();
        let versions = spec.get("versions")?.as_array()?;
        let conversion = match meta::string_at(spec, &["conversion", "strategy"]) {
            "Webhook" => ConversionStrategy::Webhook(Arc::new(spec["conversion"]["webhook"].clone())),
            _ => ConversionStrategy::None,
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
            storage_version: versions.iter().position(|version| version["storage"] == true)?,
            versions: versions.iter().map(|version| VersionEntry::new(version, (group, kind), versions)).collect(),
            conversion,
            terminating: is_condition_true(object, "Terminating"),
            served_since: 0,
            document: if document.starts_with(b"{") { document.clone() } else { object.to_string().into() },
            hash: OnceLock::new(),
        })
    }

    /// Whether a stored CRD equals this one in UID, generation, `Terminating` condition and accepted names.
    pub fn matches_stored(&self, object: &Value) -> bool {
        let accepted = &object["status"]["acceptedNames"];
        let name = |field: &str| meta::string_at(object, &["status", "acceptedNames", field]);
        self.uid == meta::uid(object)
            && self.generation == meta::integer_at(object, &["metadata", "generation"])
            && self.terminating == is_condition_true(object, "Terminating")
            && [self.kind, self.list_kind, self.singular] == ["kind", "listKind", "singular"].map(name)
            && string_items(accepted, "shortNames").eq(self.short_names.iter().copied())
            && string_items(accepted, "categories").eq(self.categories.iter().copied())
    }

    /// Whether another state of the same CRD serves the same resources; termination is ignored.
    pub fn serves_same_resources(&self, other: &Self) -> bool {
        let names = |one: &Self| [one.kind, one.list_kind, one.singular];
        // The generation also grows when deletion is requested, so compare the specs if generations differ.
        let same =
            || self.generation == other.generation || self.parse_document()["spec"] == other.parse_document()["spec"];
        self.uid == other.uid
            && names(self) == names(other)
            && self.short_names == other.short_names
            && self.categories == other.categories
            && same()
    }

    /// Returns the resources of all served versions.
    pub fn served_resources(self: &Arc<Self>) -> Vec<Arc<Resource>> {
        let served = self.versions.iter().enumerate().filter(|(_, version)| version.served);
        served.map(|(at, _)| self.build_resource(at)).collect()
    }

    /// Builds the resource of a version, served or not.
    pub fn build_resource(self: &Arc<Self>, at: usize) -> Arc<Resource> {
        let version = &self.versions[at];
        // The schema tables supply only the type of common object metadata.
        let ty = schema().type_named("meta/v1.PartialObjectMetadata").or_else(|| schema().type_named("meta/v1.Status"));
        let ty = ty.expect("the tables have the types of meta/v1");
        let mut resource = Resource::new(self.group, version.name, self.plural, self.kind, ty);
        resource.singular = self.singular;
        resource.scope = self.scope;
        resource.verbs = VERBS.to_vec();
        resource.short_names.clone_from(&self.short_names);
        resource.categories.clone_from(&self.categories);
        resource.tracks_generation = true;
        resource.requires_resource_version = true;
        resource.status_only = true;
        resource.storage_version = (self.group, self.versions[self.storage_version].name);
        resource.selectable_fields.clone_from(&version.fields);
        let subresource =
            |name, kind, group_version| Subresource { name, kind, group_version, verbs: SUBRESOURCE_VERBS.to_vec() };
        if version.status {
            resource.subresources.push(subresource("status", self.kind, None));
        }
        if version.scale.is_some() {
            resource.subresources.push(subresource("scale", "Scale", Some(("autoscaling", "v1"))));
        }
        resource.custom_schema = Some(Arc::new(CrdVersion { crd: self.clone(), index: at }));
        Arc::new(resource)
    }

    /// Returns the index of a version.
    pub fn version_index(&self, version: &str) -> Option<usize> {
        self.versions.iter().position(|known| known.name == version)
    }

    /// Returns the API version of a version, such as `example.com/v1`.
    pub fn api_version(&self, at: usize) -> String {
        format!("{}/{}", self.group, self.versions[at].name)
    }

    /// Returns the index of the version with this API version.
    fn api_version_index(&self, api_version: &str) -> Option<usize> {
        let (group, version) = api_version.split_once('/')?;
        self.version_index(version).filter(|_| group == self.group)
    }

    /// Prunes and defaults a stored object with the current schema of its own version.
    pub fn prune_and_default(&self, mut object: Value) -> Value {
        if let Some(at) = self.api_version_index(meta::string_at(&object, &["apiVersion"])) {
            let node = self.schema(at);
            // A coercion error is ignored: the object was stored under an earlier schema.
            let _ = pruning::prune_unknown_fields(node, &mut object);
            defaulting::apply_defaults(node, &mut object);
        }
        object
    }

    /// Sets the `apiVersion` of an object to a version and prunes the object with that version's schema.
    pub fn relabel_version(&self, mut object: Value, at: usize) -> Value {
        meta::object_mut(&mut object).insert("apiVersion".into(), self.api_version(at).into());
        let _ = pruning::prune_unknown_fields(self.schema(at), &mut object);
        object
    }

    /// Returns the structural schema of a version.
    pub fn schema(&self, at: usize) -> &Arc<Structural> {
        &self.built_version(at).schema
    }

    /// Returns the entry of a version in `spec.versions`.
    pub fn version_spec(&self, at: usize) -> Value {
        self.parse_document()["spec"]["versions"][at].take()
    }

    /// Returns a hash of the whole CRD.
    pub fn hash(&self) -> &str {
        self.hash.get_or_init(|| api::cached_document::CachedDocument::new(self.document.clone()).hash)
    }

    fn parse_document(&self) -> Value {
        // The document was parsed successfully before.
        serde_json::from_slice(&self.document).unwrap_or_default()
    }

    fn built_version(&self, at: usize) -> &BuiltVersion {
        self.versions[at].built.get_or_init(|| {
            let version = self.version_spec(at);
            let schema = meta::value_at(&version, &["schema", "openAPIV3Schema"]).unwrap_or(&Value::Null);
            BuiltVersion {
                schema: Arc::new(crate::structural_schema::parse_schema(schema)),
                table_convertor: TableConvertor::new(&version),
            }
        })
    }
}

impl VersionEntry {
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
            warning: flag("deprecated").then(|| crd_version::deprecation_warning(version, kind, all)),
            status: meta::value_at(version, &["subresources", "status"]).is_some_and(Value::is_object),
            scale: scale.map(ScalePaths::new),
            fields: meta::list_at(version, &["selectableFields"]).iter().map(path).collect(),
            built: OnceLock::new(),
        }
    }
}

fn string_items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    value.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Validates the CEL rules of a CRD's schemas. Schemas that did not change are not checked again.
pub fn validate_crd_rules(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let versions = |object: &'_ Value| meta::list_at(object, &["spec", "versions"]).to_vec();
    let (new, before) = (versions(object), old.map(versions).unwrap_or_default());
    let schema = |version: &Value| meta::value_at(version, &["schema", "openAPIV3Schema"]).cloned();
    let known: Vec<Value> = before.iter().filter_map(schema).collect();
    let schemas: Vec<Option<Value>> = new.iter().map(schema).collect();
    // A schema shared by all versions is reported once, under `spec.validation`.
    let shared = schemas.windows(2).all(|pair| pair[0] == pair[1]);
    let mut errors = Vec::new();
    for (at, schema) in schemas.iter().enumerate().take(if shared { 1 } else { usize::MAX }) {
        let Some(schema) = schema.as_ref().filter(|schema| !known.contains(schema)) else { continue };
        let path = match shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{at}].schema.openAPIV3Schema"),
        };
        errors.extend(validation_rules::check_rules(&Arc::new(crate::structural_schema::parse_schema(schema)), &path));
    }
    errors
}
