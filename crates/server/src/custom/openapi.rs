//! OpenAPI of custom resources: a document per group-version in version 3, and what they add to the one of version 2.
//!
//! A document is known by the hash of the definitions that it is made of, so that the index of all costs no document.

use std::collections::BTreeMap;

use api::{
    Value,
    discovery::Page,
    openapi::{added_v2, document_of},
    schema::Resource,
};
use custom::{
    Version,
    openapi::{Dialect, schemas},
};
use serde_json::json;

use super::{Rows, version_of};

/// The index of documents with those of custom resources.
pub fn index(built_in: &Page, rows: &Rows) -> Option<Value> {
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

/// The document of version 3 at a path such as `apis/example.com/v1`.
pub fn document(path: &str, rows: &Rows) -> Option<Page> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let rows = rows.of_version(group, version);
    let all = rows.iter().filter_map(|row| version_of(row)).flat_map(|version| of_version(version, Dialect::V3));
    let document = document_of(&rows, all.collect())?;
    Some(Page::hashed(document.to_string(), hash(&rows)))
}

/// The document of version 2 with custom resources.
pub fn v2(built_in: &Page, rows: &Rows) -> Option<Value> {
    let mut document: Value = serde_json::from_slice(&built_in.bytes).ok()?;
    let rows = rows.all();
    let added = added_v2(&rows);
    let definitions = document["definitions"].as_object_mut()?;
    for version in rows.iter().filter_map(|row| version_of(row)) {
        definitions.extend(of_version(version, Dialect::V2));
    }
    document["paths"].as_object_mut()?.extend(added.paths);
    document["parameters"].as_object_mut()?.extend(added.parameters);
    Some(document)
}

fn of_version(version: &Version, dialect: Dialect) -> BTreeMap<String, Value> {
    schemas(&version.definition, version.at, dialect)
}

/// A hash of all that rows are made of.
fn hash(rows: &[&Resource]) -> String {
    let hashes: Vec<&str> = rows.iter().filter_map(|row| Some(version_of(row)?.definition.hash())).collect();
    Page::new(hashes.join(" ")).hash
}
