//! Documents about custom resources: the routes are those of any resource, the schemas come from whoever made the rows.

use std::collections::BTreeMap;

use super::{
    components::Components,
    documents::{self, Document},
    operations::Writer,
    resource_paths::routes,
    versions,
};
use crate::{Value, schema::Resource};

/// What the key of a component begins with whose name is the rest.
const NAMED: char = '@';

/// The key of the component of a kind.
pub(super) fn key(group: &str, version: &str, kind: &str) -> String {
    format!("{NAMED}{}", model_name(group, version, kind))
}

/// The name of a component, if its key says it.
pub(super) fn name(key: &str) -> Option<&str> {
    key.strip_prefix(NAMED)
}

/// `com.example.v1.Boat`: the name of a kind in documents.
pub fn model_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    parts.extend([version, kind]);
    parts.join(".")
}

/// The document of version 3 about the custom rows of one group-version, with the schemas of their kinds by name.
pub fn document_of(rows: &[&Resource], schemas: BTreeMap<String, Value>) -> Option<Value> {
    let document = document(rows)?;
    let mut out = versions::v3(&document);
    let components = Components::v3(document.group_version);
    let common = ["meta/v1.ObjectMeta", "meta/v1.ListMeta"].map(str::to_owned);
    let known = out["components"]["schemas"].as_object_mut()?;
    known.extend(components.closure(common.into_iter()));
    known.extend(schemas);
    Some(out)
}

/// What custom rows add to the document of version 2, besides the schemas of their kinds: each path with its operations is
/// handed out, and the parameters that operations share are returned.
pub fn added_v2(rows: &[&Resource], mut path: impl FnMut(String, Value)) -> BTreeMap<String, Value> {
    let components = Components::v2();
    let mut writer = Writer::new(&components);
    for row in rows {
        writer.paths(&routes(row)).into_iter().for_each(|(name, item)| path(name, item));
    }
    writer.shared
}

fn document(rows: &[&Resource]) -> Option<Document> {
    let first = rows.first()?;
    let mut document = documents::version_document(first.group, first.version);
    document.routes.extend(rows.iter().flat_map(|row| routes(row)));
    Some(document)
}
