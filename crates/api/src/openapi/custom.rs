//! Documents about custom resources: the routes are those of any resource, the schemas come from whoever made the rows.

use std::collections::BTreeMap;

use serde_json::json;

use super::{components::Components, operations::Writer, resource_paths::routes, route::Route};
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

/// What all schemas of custom kinds refer to.
const COMMON: &[&str] = &["meta/v1.ObjectMeta", "meta/v1.ListMeta"];

/// The document of version 3 about the custom rows of one group-version, with the schemas of their kinds by name; `None` if
/// there are no rows.
pub fn document_of(rows: &[&Resource], schemas: BTreeMap<String, Value>) -> Option<Value> {
    rows.first()?;
    let components = Components::v3_custom();
    let routes: Vec<Route> = rows.iter().flat_map(|row| routes(row)).collect();
    let common = COMMON.iter().map(|key| (*key).to_owned());
    let mut known = components.closure(routes.iter().flat_map(Route::components).chain(common));
    known.extend(schemas);
    let paths = Writer::new(&components).paths(&routes);
    // The title and its version are upstream's, by which clients can tell such a document.
    let info = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": known}}))
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
