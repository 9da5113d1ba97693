//! OpenAPI of custom resources: a v3 document per group-version, and additions to the v2 document.
//!
//! A v3 document is identified by the hash of its CRDs, so that serving the index builds no document.

use std::collections::BTreeMap;

use api::{
    Value,
    cached_document::CachedDocument,
    openapi::{custom_resource_document, custom_resource_paths_v2},
    schema::Resource,
};
use serde_json::json;

use crate::{
    CrdVersion, ServedResources, crd_version,
    json_members::JsonMembers,
    openapi::{OpenApiVersion, version_schemas},
};

/// Adds custom group-versions to the OpenAPI v3 index.
pub fn v3_index(built_in: &CachedDocument, served: &ServedResources) -> Option<Value> {
    let mut index: Value = serde_json::from_slice(&built_in.bytes).ok()?;
    let paths = index["paths"].as_object_mut()?;
    for (group, versions) in served.groups() {
        for version in versions {
            let path = format!("apis/{group}/{version}");
            let url = format!("/openapi/v3/{path}?hash={}", hash_crds(&served.resources_of_version(group, version)));
            paths.entry(path).or_insert_with(|| json!({"serverRelativeURL": url}));
        }
    }
    Some(index)
}

/// Builds the OpenAPI v3 document at a path such as `apis/example.com/v1`.
pub fn v3_document(path: &str, served: &ServedResources) -> Option<CachedDocument> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let resources = served.resources_of_version(group, version);
    let all = resources
        .iter()
        .filter_map(|resource| crd_version(resource))
        .flat_map(|version| schemas_of_version(version, OpenApiVersion::V3));
    let document = custom_resource_document(&resources, all.collect())?;
    Some(CachedDocument::with_hash(serde_json::to_vec(&document).ok()?, hash_crds(&resources)))
}

/// Adds custom resources to the OpenAPI v2 document.
pub fn v2_document(built_in: &CachedDocument, served: &ServedResources) -> Option<String> {
    let mut document = JsonMembers::parse(str::from_utf8(&built_in.bytes).ok()?)?;
    let mut paths = document.take_object("paths")?;
    let mut parameters = document.take_object("parameters")?;
    let mut definitions = document.take_object("definitions")?;
    let resources = served.all_resources();
    let shared = custom_resource_paths_v2(&resources, |path, item| paths.insert_value(path, &item));
    shared.into_iter().for_each(|(name, parameter)| parameters.insert_value(name, &parameter));
    let schemas = resources
        .iter()
        .filter_map(|resource| crd_version(resource))
        .flat_map(|version| schemas_of_version(version, OpenApiVersion::V2));
    schemas.for_each(|(name, schema)| definitions.insert_value(name, &schema));
    document.insert_object("paths", &paths);
    document.insert_object("parameters", &parameters);
    document.insert_object("definitions", &definitions);
    Some(document.to_json())
}

fn schemas_of_version(version: &CrdVersion, dialect: OpenApiVersion) -> BTreeMap<String, Value> {
    version_schemas(&version.crd, version.index, dialect)
}

/// Hashes the CRDs of some resources.
fn hash_crds(resources: &[&Resource]) -> String {
    let hashes: Vec<&str> = resources.iter().filter_map(|resource| Some(crd_version(resource)?.crd.hash())).collect();
    CachedDocument::new(hashes.join(" ")).hash
}
