//! OpenAPI of custom resources: a v3 document per group-version, and additions to the v2 document.
//!
//! A v3 document is identified by the hash of its CRDs, so that serving the index builds no document.

use std::collections::BTreeMap;

use api::{
    Value,
    discovery::CachedDocument,
    openapi::{custom_resource_document, custom_resource_paths_v2},
    schema::Resource,
};
use serde_json::json;

use crate::{
    Rows, Version,
    members::Members,
    openapi::{Dialect, schemas},
    version_of,
};

/// Adds custom group-versions to the OpenAPI v3 index.
pub fn index(built_in: &CachedDocument, rows: &Rows) -> Option<Value> {
    let mut index: Value = serde_json::from_slice(&built_in.bytes).ok()?;
    let paths = index["paths"].as_object_mut()?;
    for (group, versions) in rows.groups() {
        for version in versions {
            let path = format!("apis/{group}/{version}");
            let url = format!("/openapi/v3/{path}?hash={}", hash(&rows.of_version(group, version)));
            paths.entry(path).or_insert_with(|| json!({"serverRelativeURL": url}));
        }
    }
    Some(index)
}

/// Builds the OpenAPI v3 document at a path such as `apis/example.com/v1`.
pub fn document(path: &str, rows: &Rows) -> Option<CachedDocument> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let rows = rows.of_version(group, version);
    let all = rows.iter().filter_map(|row| version_of(row)).flat_map(|version| of_version(version, Dialect::V3));
    let document = custom_resource_document(&rows, all.collect())?;
    Some(CachedDocument::with_hash(serde_json::to_vec(&document).ok()?, hash(&rows)))
}

/// Adds custom resources to the OpenAPI v2 document.
pub fn v2(built_in: &CachedDocument, rows: &Rows) -> Option<String> {
    let mut document = Members::of(str::from_utf8(&built_in.bytes).ok()?)?;
    let mut paths = document.take("paths")?;
    let mut parameters = document.take("parameters")?;
    let mut definitions = document.take("definitions")?;
    let rows = rows.all();
    let shared = custom_resource_paths_v2(&rows, |path, item| paths.add(path, &item));
    shared.into_iter().for_each(|(name, parameter)| parameters.add(name, &parameter));
    let schemas = rows.iter().filter_map(|row| version_of(row)).flat_map(|version| of_version(version, Dialect::V2));
    schemas.for_each(|(name, schema)| definitions.add(name, &schema));
    document.put("paths", &paths);
    document.put("parameters", &parameters);
    document.put("definitions", &definitions);
    Some(document.text())
}

fn of_version(version: &Version, dialect: Dialect) -> BTreeMap<String, Value> {
    schemas(&version.definition, version.at, dialect)
}

/// Hashes the CRDs of some resources.
fn hash(rows: &[&Resource]) -> String {
    let hashes: Vec<&str> = rows.iter().filter_map(|row| Some(version_of(row)?.definition.hash())).collect();
    CachedDocument::new(hashes.join(" ")).hash
}
