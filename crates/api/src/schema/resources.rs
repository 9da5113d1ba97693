//! Resources: what is served under which path, with which verbs and names.

use std::{collections::HashMap, sync::Arc};

use super::{Custom, TypeId, gate};
use crate::Value;

/// The table.
pub(super) const TABLE: &str = include_str!("../../schema/resources.txt");
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Whether objects live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One for the whole cluster.
    Cluster,
    /// One per namespace.
    Namespaced,
}

/// A row of the table: one resource in one version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural name, as in paths.
    pub name: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The schema of the kind.
    pub ty: TypeId,
    /// Whether it is namespaced.
    pub scope: Scope,
    /// What may be done.
    pub verbs: Vec<&'static str>,
    /// Short names, for example `deploy`.
    pub short_names: Vec<&'static str>,
    /// Categories, for example `all`.
    pub categories: Vec<&'static str>,
    /// What is under an object's path.
    pub subresources: Vec<Subresource>,
    /// Writers see `metadata.generation` grow with the specification.
    pub generation: bool,
    /// A delete answers with the deleted object, not with a status.
    pub returns_deleted: bool,
    /// An update of an object that is not there creates it.
    pub upsert: bool,
    /// An update must name the revision that it changes.
    pub conditional: bool,
    /// A delete that does not say otherwise leaves the dependents behind.
    pub orphans: bool,
    /// A write of the status leaves labels, annotations, finalizers and owners alone.
    pub status_only: bool,
    /// How a selector by a field that is not known is refused.
    pub unknown_field: UnknownField,
    /// Group and version in which upstream stores the objects.
    pub stored: (&'static str, &'static str),
    /// The fields, besides name and namespace, that field selectors know.
    pub fields: Vec<SelectableField>,
    /// Since when it is deprecated, when it goes, and what to use instead: `1.33`, `1.36`, `apps/v1_Deployment`.
    deprecated: Option<(&'static str, &'static str, &'static str)>,
    /// What is particular to a row that was made at run time.
    pub custom: Option<Arc<dyn Custom>>,
}

/// How a selector by a field that is not known is refused: upstream's words differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownField {
    /// By the field alone.
    Plain,
    /// By the field in quotes, and the kind.
    Quoted,
    /// By the kind with its group and version.
    Typed,
}

/// A field that selectors know: `source=source.component|reportingComponent`, `spec.hostNetwork:false`.
#[derive(Clone, Debug)]
pub struct SelectableField {
    /// The name in selectors.
    pub name: &'static str,
    /// Where its value is; the first that is there counts.
    pub paths: Vec<&'static str>,
    /// Its value where there is none.
    pub absent: &'static str,
}

/// Something under an object's path, for example `status`.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last part of the path.
    pub name: &'static str,
    /// The kind that it takes and gives.
    pub kind: &'static str,
    /// The kind's group and version, where they are not the resource's.
    pub group_version: Option<(&'static str, &'static str)>,
    /// What may be done.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// A row of which nothing but the names is known: nothing may be done.
    pub fn new(group: &'static str, version: &'static str, name: &'static str, kind: &'static str, ty: TypeId) -> Self {
        Self {
            group,
            version,
            name,
            singular: "",
            kind,
            ty,
            scope: Scope::Cluster,
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
            generation: false,
            returns_deleted: false,
            upsert: false,
            conditional: false,
            orphans: false,
            status_only: false,
            unknown_field: UnknownField::Plain,
            stored: (group, version),
            fields: Vec::new(),
            deprecated: None,
            custom: None,
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        join_group_version(self.group, self.version)
    }

    /// `pods` or `deployments.apps`, as messages name it.
    pub fn qualified_name(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }

    /// What is told whoever uses a resource that is deprecated.
    pub fn deprecation(&self) -> Option<String> {
        if let Some(custom) = &self.custom {
            return custom.deprecation();
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

    /// In which release it will be gone, if it is deprecated; empty where that is not decided.
    pub fn removed_in(&self) -> Option<&'static str> {
        self.deprecated.map(|(_, until, _)| until)
    }

    /// The kind of lists of its objects.
    pub fn list_kind(&self) -> String {
        self.custom.as_ref().map_or_else(|| format!("{}List", self.kind), |custom| custom.list_kind().to_owned())
    }

    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether objects live in a namespace.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Group and plural name under which the objects of all versions are kept.
    pub fn storage(&self) -> (&'static str, &'static str) {
        match (self.group, self.name) {
            ("events.k8s.io", "events") => ("", "events"),
            other => other,
        }
    }
}

impl Resource {
    /// The field that selectors know by this name.
    pub fn field(&self, name: &str) -> Option<&SelectableField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl SelectableField {
    /// The text of the first path that has one.
    pub fn text(&self, object: &Value) -> String {
        let text = |path: &&str| match path.split('.').try_fold(object, |value, name| value.get(name))? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        self.paths.iter().find_map(text).unwrap_or_else(|| self.absent.to_owned())
    }
}

/// `v1` for the core group, `group/version` otherwise.
pub fn join_group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Parses a table; `types` resolves kinds.
pub(super) fn load(table: &'static str, types: &HashMap<String, TypeId>, gates: &[&'static str]) -> Vec<Resource> {
    let mut resources = Vec::new();
    let mut group_version = ("", "");
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    for line in lines.filter_map(|line| gate::passed(line, gates)) {
        match line.strip_prefix("  ") {
            Some(row) => resources.push(resource(group_version, row, types)),
            None => {
                let (group, version) = line.trim_end_matches(':').split_once('/').expect("group/version");
                group_version = (if group == "core" { "" } else { group }, version);
            }
        }
    }
    resources
}

fn resource(
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
    words.for_each(|word| set(&mut resource, word));
    resource
}

fn set(resource: &mut Resource, word: &'static str) {
    let (key, argument) = match word.split_once('(') {
        Some((key, argument)) => (key, argument.trim_end_matches(')')),
        None => (word, ""),
    };
    let list = || argument.split(',').collect::<Vec<_>>();
    match key {
        "ns" => resource.scope = Scope::Namespaced,
        "cluster" => resource.scope = Scope::Cluster,
        "verbs" if argument == "all" => resource.verbs = ALL.to_vec(),
        "verbs" => resource.verbs = list(),
        "singular" => resource.singular = argument,
        "short" => resource.short_names = list(),
        "cat" => resource.categories = list(),
        "generation" => resource.generation = true,
        "deleted" => resource.returns_deleted = true,
        "upsert" => resource.upsert = true,
        "conditional" => resource.conditional = true,
        "orphans" => resource.orphans = true,
        "statusonly" => resource.status_only = true,
        "unknown" => resource.unknown_field = unknown_field(argument),
        "stored" => resource.stored = stored(resource.group, argument),
        "fields" => resource.fields = argument.split(',').map(selectable).collect(),
        "deprecated" => {
            let mut parts = argument.splitn(3, ':').map(Some).chain(std::iter::repeat(None));
            let mut next = || parts.next().flatten().unwrap_or_default();
            resource.deprecated = Some((next(), next(), next()));
        }
        "sub" => resource.subresources.push(subresource(argument)),
        other => panic!("resources.txt has an unknown word {other:?}"),
    }
}

/// `v1` of the same group, or `core/v1`.
fn stored(group: &'static str, text: &'static str) -> (&'static str, &'static str) {
    match text.split_once('/') {
        Some(("core", version)) => ("", version),
        Some(other) => other,
        None => (group, text),
    }
}

fn unknown_field(text: &str) -> UnknownField {
    match text {
        "quoted" => UnknownField::Quoted,
        "typed" => UnknownField::Typed,
        other => panic!("resources.txt refuses unknown fields in an unknown way {other:?}"),
    }
}

fn selectable(text: &'static str) -> SelectableField {
    let (text, absent) = text.split_once(':').unwrap_or((text, ""));
    let (name, paths) = text.split_once('=').unwrap_or((text, text));
    SelectableField { name, paths: paths.split('|').collect(), absent }
}

/// `scale:autoscaling/v1.Scale:get,patch,update`
fn subresource(text: &'static str) -> Subresource {
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
