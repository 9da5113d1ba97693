//! The resource table: group-version-resources with their names, verbs and subresources.

use std::{collections::HashMap, sync::Arc};

use super::{CustomResourceSchema, TypeId, table_gate};
use crate::Value;

/// The source of the table.
pub(super) const RESOURCE_TABLE: &str = include_str!("../../schema/resources.txt");
const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Whether a resource is namespaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceScope {
    /// Cluster-scoped.
    #[default]
    Cluster,
    /// Namespaced.
    Namespaced,
}

/// One resource in one version, upstream's `APIResource` with storage options.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural name in paths.
    pub name: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The type of the objects.
    pub ty: TypeId,
    /// Whether it is namespaced.
    pub scope: ResourceScope,
    /// The supported verbs.
    pub verbs: Vec<&'static str>,
    /// Short names, for example `deploy`.
    pub short_names: Vec<&'static str>,
    /// Categories, for example `all`.
    pub categories: Vec<&'static str>,
    /// The subresources.
    pub subresources: Vec<Subresource>,
    /// Whether `metadata.generation` grows with changes of the spec.
    pub tracks_generation: bool,
    /// Whether a delete responds with the deleted object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether an update of a missing object creates it.
    pub allows_create_on_update: bool,
    /// Whether an update must carry a `resourceVersion`.
    pub requires_resource_version: bool,
    /// Whether a delete orphans dependents unless requested otherwise.
    pub orphans_by_default: bool,
    /// Whether status updates leave labels, annotations, finalizers and owner references alone.
    pub status_only: bool,
    /// The wording of the error for an unknown field in a field selector.
    pub unknown_field_error: UnknownFieldError,
    /// Group and version of upstream's storage.
    pub storage_version: (&'static str, &'static str),
    /// The selectable fields besides name and namespace.
    pub selectable_fields: Vec<SelectableField>,
    /// The releases of deprecation and removal, and the replacement: `1.33`, `1.36`, `apps/v1_Deployment`.
    deprecated: Option<(&'static str, &'static str, &'static str)>,
    /// The schema of a custom resource; `None` for built-in resources.
    pub custom_schema: Option<Arc<dyn CustomResourceSchema>>,
}

/// The wording of the error for an unknown field in a field selector; it differs upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFieldError {
    /// With the field only.
    #[default]
    Plain,
    /// With the quoted field and the kind.
    Quoted,
    /// With the kind and its group-version.
    Typed,
}

/// A selectable field, in the table `source=source.component|reportingComponent` or `spec.hostNetwork:false`.
#[derive(Clone, Debug)]
pub struct SelectableField {
    /// The field label in selectors.
    pub name: &'static str,
    /// The field paths; the first with a value counts.
    pub paths: Vec<&'static str>,
    /// The value when no path has one.
    pub default_value: &'static str,
}

/// A subresource, for example `status`.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the path.
    pub name: &'static str,
    /// The kind of request and response bodies.
    pub kind: &'static str,
    /// The group-version of the kind, where it differs from the resource's.
    pub group_version: Option<(&'static str, &'static str)>,
    /// The supported verbs.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// Creates a cluster-scoped resource without verbs and with default options.
    pub fn new(group: &'static str, version: &'static str, name: &'static str, kind: &'static str, ty: TypeId) -> Self {
        Self { group, version, name, kind, ty, storage_version: (group, version), ..Self::default() }
    }

    /// Formats the group-version: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        join_group_version(self.group, self.version)
    }

    /// Formats the name with its group as in messages: `pods` or `deployments.apps`.
    pub fn qualified_name(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }

    /// The deprecation warning sent to clients of a deprecated version.
    pub fn deprecation_warning(&self) -> Option<String> {
        if let Some(custom) = &self.custom_schema {
            return custom.deprecation_warning();
        }
        let (since, until, instead) = self.deprecated?;
        let mut text = format!("{} {} is deprecated in v{since}+", self.api_version(), self.kind);
        if !until.is_empty() {
            text += &format!(", unavailable in v{until}+");
        }
        if !instead.is_empty() {
            text += &format!("; use {}", instead.replace('_', " "));
        }
        Some(text)
    }

    /// The release that removes a deprecated version; empty where it is undecided.
    pub fn removed_in(&self) -> Option<&'static str> {
        self.deprecated.map(|(_, until, _)| until)
    }

    /// The kind of lists.
    pub fn list_kind(&self) -> String {
        self.custom_schema.as_ref().map_or_else(|| format!("{}List", self.kind), |custom| custom.list_kind().to_owned())
    }

    /// Returns a subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether objects are namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == ResourceScope::Namespaced
    }

    /// Group and plural name of the storage that all versions share.
    pub fn storage_resource(&self) -> (&'static str, &'static str) {
        match (self.group, self.name) {
            ("events.k8s.io", "events") => ("", "events"),
            other => other,
        }
    }
}

impl Resource {
    /// Returns the selectable field of this label.
    pub fn selectable_field(&self, name: &str) -> Option<&SelectableField> {
        self.selectable_fields.iter().find(|field| field.name == name)
    }
}

impl SelectableField {
    /// Returns the value of the first path that has one.
    pub fn value_of(&self, object: &Value) -> String {
        let text = |path: &&str| match path.split('.').try_fold(object, |value, name| value.get(name))? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        self.paths.iter().find_map(text).unwrap_or_else(|| self.default_value.to_owned())
    }
}

/// Joins group and version: `v1` for the core group, `group/version` otherwise.
pub fn join_group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Parses the table; `types` resolves kinds.
pub(super) fn parse_resources(
    table: &'static str,
    types: &HashMap<String, TypeId>,
    gates: &[&'static str],
) -> Vec<Resource> {
    let mut resources = Vec::new();
    let mut group_version = ("", "");
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    for line in lines.filter_map(|line| table_gate::strip_gate(line, gates)) {
        match line.strip_prefix("  ") {
            Some(row) => resources.push(parse_resource(group_version, row, types)),
            None => {
                let (group, version) = line.trim_end_matches(':').split_once('/').expect("group/version");
                group_version = (if group == "core" { "" } else { group }, version);
            }
        }
    }
    resources
}

fn parse_resource(
    (group, version): (&'static str, &'static str),
    row: &'static str,
    types: &HashMap<String, TypeId>,
) -> Resource {
    let (name, rest) = row.split_once(": ").expect("a resource has a name");
    let mut words = rest.split_whitespace();
    let kind = words.next().expect("a resource has a kind");
    let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
    let ty = *types
        .get(&format!("{package}/{version}.{kind}"))
        .unwrap_or_else(|| panic!("no type for {group}/{version} {kind}"));
    let mut resource = Resource::new(group, version, name, kind, ty);
    words.for_each(|word| set_attribute(&mut resource, word));
    resource
}

fn set_attribute(resource: &mut Resource, word: &'static str) {
    let (key, argument) = match word.split_once('(') {
        Some((key, argument)) => (key, argument.trim_end_matches(')')),
        None => (word, ""),
    };
    let list = || argument.split(',').collect::<Vec<_>>();
    match key {
        "ns" => resource.scope = ResourceScope::Namespaced,
        "cluster" => resource.scope = ResourceScope::Cluster,
        "verbs" if argument == "all" => resource.verbs = ALL_VERBS.to_vec(),
        "verbs" => resource.verbs = list(),
        "singular" => resource.singular = argument,
        "short" => resource.short_names = list(),
        "cat" => resource.categories = list(),
        "generation" => resource.tracks_generation = true,
        "deleted" => resource.returns_deleted = true,
        "upsert" => resource.allows_create_on_update = true,
        "conditional" => resource.requires_resource_version = true,
        "orphans" => resource.orphans_by_default = true,
        "statusonly" => resource.status_only = true,
        "unknown" => resource.unknown_field_error = parse_unknown_field_error(argument),
        "stored" => resource.storage_version = parse_storage_version(resource.group, argument),
        "fields" => resource.selectable_fields = argument.split(',').map(parse_selectable_field).collect(),
        "deprecated" => {
            let mut parts = argument.splitn(3, ':').map(Some).chain(std::iter::repeat(None));
            let mut next = || parts.next().flatten().unwrap_or_default();
            resource.deprecated = Some((next(), next(), next()));
        }
        "sub" => resource.subresources.push(parse_subresource(argument)),
        other => panic!("resources.txt has an unknown word {other:?}"),
    }
}

/// Parses `v1` of the same group, or `core/v1`.
fn parse_storage_version(group: &'static str, text: &'static str) -> (&'static str, &'static str) {
    match text.split_once('/') {
        Some(("core", version)) => ("", version),
        Some(other) => other,
        None => (group, text),
    }
}

fn parse_unknown_field_error(text: &str) -> UnknownFieldError {
    match text {
        "quoted" => UnknownFieldError::Quoted,
        "typed" => UnknownFieldError::Typed,
        other => panic!("resources.txt refuses unknown fields in an unknown way {other:?}"),
    }
}

fn parse_selectable_field(text: &'static str) -> SelectableField {
    let (text, absent) = text.split_once(':').unwrap_or((text, ""));
    let (name, paths) = text.split_once('=').unwrap_or((text, text));
    SelectableField { name, paths: paths.split('|').collect(), default_value: absent }
}

/// Parses `scale:autoscaling/v1.Scale:get,patch,update`.
fn parse_subresource(text: &'static str) -> Subresource {
    let mut parts = text.splitn(3, ':');
    let (name, kind, verbs) = (parts.next(), parts.next(), parts.next());
    let kind = kind.expect("a subresource has a kind");
    let (group_version, kind) = match kind.rsplit_once('.') {
        Some((gv, kind)) => (gv.split_once('/'), kind),
        None => (None, kind),
    };
    Subresource {
        name: name.expect("a subresource has a name"),
        kind,
        group_version,
        verbs: verbs.expect("a subresource has verbs").split(',').collect(),
    }
}
