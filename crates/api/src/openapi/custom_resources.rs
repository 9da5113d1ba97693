//! OpenAPI documents of custom resources: routes as for any resource, schemas from the CRDs.

use std::collections::BTreeMap;

use serde_json::json;

use super::{components::Components, operations::Writer, resource_routes::routes, route::Route};
use crate::{Value, schema::Resource};

/// The prefix of component keys that contain their name.
const NAMED: char = '@';

/// The component key of a kind.
pub(super) fn key(group: &str, version: &str, kind: &str) -> String {
    format!("{NAMED}{}", model_name(group, version, kind))
}

/// The component name in a key.
pub(super) fn name(key: &str) -> Option<&str> {
    key.strip_prefix(NAMED)
}

/// The model name of a kind: `com.example.v1.Boat`.
pub fn model_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    parts.extend([version, kind]);
    parts.join(".")
}

/// The components that all custom schemas refer to.
const COMMON: &[&str] = &["meta/v1.ObjectMeta", "meta/v1.ListMeta"];

/// Builds the v3 document of the custom resources of one group-version, with the schemas of their kinds by name; `None`
/// without resources.
pub fn custom_resource_document(rows: &[&Resource], schemas: BTreeMap<String, Value>) -> Option<Value> {
    rows.first()?;
    let components = Components::v3_custom();
    let routes: Vec<Route> = rows.iter().flat_map(|row| routes(row)).collect();
    let common = COMMON.iter().map(|key| (*key).to_owned());
    let mut known = components.closure(routes.iter().flat_map(Route::components).chain(common));
    known.extend(schemas);
    let paths = Writer::new(&components).paths(&routes);
    // Title and version are upstream's; clients recognize these documents by them.
    let info = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": known}}))
}

/// Builds what custom resources add to the v2 document besides schemas: calls `path` for each path item and returns the
/// shared parameters.
pub fn custom_resource_paths_v2(rows: &[&Resource], mut path: impl FnMut(String, Value)) -> BTreeMap<String, Value> {
    let components = Components::v2();
    let mut writer = Writer::new(&components);
    for row in rows {
        writer.paths(&routes(row)).into_iter().for_each(|(name, item)| path(name, item));
    }
    writer.shared
}
