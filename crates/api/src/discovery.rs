//! Discovery documents: what the server offers, in the old form and in the aggregated one.
//!
//! What a server does not serve is left out. Order, empty fields and hashes are upstream's: clients cache and compare these documents.

mod pages;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    Map, Value,
    schema::{Resource, Subresource, schema},
};

pub use pages::{Name, Page, Pages};

/// Whether a group-version is served.
pub type Enabled<'a> = &'a dyn Fn(&str, &str) -> bool;

/// All group-versions of the tables.
pub const ALL: Enabled<'static> = &|_, _| true;

/// Whether upstream serves a group-version without being asked to: what is neither alpha nor beta.
pub fn enabled_by_default(_group: &str, version: &str) -> bool {
    !version.contains("alpha") && !version.contains("beta")
}

/// Served group and version pairs in order, without repeats.
pub fn group_versions(enabled: Enabled) -> Vec<(&'static str, &'static str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for resource in schema().resources() {
        let pair = (resource.group, resource.version);
        if !out.contains(&pair) && enabled(pair.0, pair.1) {
            out.push(pair);
        }
    }
    out
}

/// The served groups besides core, in order.
pub fn groups(enabled: Enabled) -> Vec<&'static str> {
    let mut out: Vec<&str> = Vec::new();
    for (group, _) in group_versions(enabled) {
        if !group.is_empty() && !out.contains(&group) {
            out.push(group);
        }
    }
    out
}

/// `/api`
pub fn core_versions(server_address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]})
}

/// `/apis`, of the served group-versions.
pub fn group_list(enabled: Enabled) -> Value {
    let groups: Vec<Value> = groups(enabled).into_iter().filter_map(|name| group_body(name, enabled)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`, of the served group-versions.
pub fn group(name: &str, enabled: Enabled) -> Option<Value> {
    group_body(name, enabled).map(whole_group)
}

/// A group as a document of its own.
pub fn whole_group(mut body: Value) -> Value {
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    body
}

/// A group in a list of groups, with its versions, the preferred first; `None` if there are none.
pub fn group_of(name: &str, versions: &[&str]) -> Option<Value> {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn group_body(name: &str, enabled: Enabled) -> Option<Value> {
    let served = group_versions(enabled).into_iter().filter(|(group, _)| *group == name && !group.is_empty());
    group_of(name, &served.map(|(_, version)| version).collect::<Vec<_>>())
}

/// `/api/v1` and `/apis/<group>/<version>`
pub fn resource_list(group: &str, version: &str) -> Option<Value> {
    resource_list_of(of_version(group, version))
}

/// The list of the rows of one group-version; `None` if there are none.
pub fn resource_list_of<'a>(resources: impl Iterator<Item = &'a Resource>) -> Option<Value> {
    let resources: Vec<&Resource> = resources.collect();
    let first = resources.first()?;
    let entries: Vec<Value> = resources.iter().flat_map(|resource| resource_entries(resource)).collect();
    let mut body = json!({"kind": "APIResourceList", "groupVersion": first.api_version(), "resources": entries});
    if !first.group.is_empty() {
        body["apiVersion"] = "v1".into();
    }
    Some(body)
}

fn of_version<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Resource> + 'a {
    schema().resources().iter().filter(move |r| r.group == group && r.version == version)
}

fn resource_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), resource.name.into());
    entry.insert("singularName".into(), resource.singular.into());
    entry.insert("namespaced".into(), resource.namespaced().into());
    entry.insert("kind".into(), resource.kind.into());
    entry.insert("verbs".into(), json!(resource.verbs));
    names(resource, &mut entry);
    if resource.verbs.contains(&"watch") {
        entry.insert("storageVersionHash".into(), storage_version_hash(resource).into());
    }
    let subresources = resource.subresources.iter().map(|sub| {
        let mut entry = json!({"name": format!("{}/{}", resource.name, sub.name), "singularName": "",
            "namespaced": resource.namespaced(), "kind": sub.kind, "verbs": sub.verbs});
        if let Some((group, version)) = sub.group_version {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entry
    });
    std::iter::once(Value::Object(entry)).chain(subresources).collect()
}

fn names(resource: &Resource, entry: &mut Map) {
    for (field, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            entry.insert(field.into(), json!(names));
        }
    }
}

/// Tells clients that migrate storage when the stored version changes.
fn storage_version_hash(resource: &Resource) -> String {
    let (group, version) = resource.storage_version;
    BASE64_STANDARD.encode(&Sha256::digest(format!("{group}/{version}/{}", resource.kind))[..8])
}

/// The versions of the aggregated form, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregatedVersion {
    /// `apidiscovery.k8s.io/v2`
    V2,
    /// `apidiscovery.k8s.io/v2beta1`
    V2Beta1,
}

/// The aggregated form of `/api` (`core`) or `/apis`, of the served group-versions.
pub fn aggregated(core: bool, form: AggregatedVersion, enabled: Enabled) -> Value {
    let names = if core { vec![""] } else { groups(enabled) };
    let versions = group_versions(enabled);
    let items: Vec<Value> = names.into_iter().map(|name| aggregated_group(name, &versions)).collect();
    let api_version = match form {
        AggregatedVersion::V2 => "apidiscovery.k8s.io/v2",
        AggregatedVersion::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items})
}

fn aggregated_group(name: &str, versions: &[(&str, &str)]) -> Value {
    let of_group = versions.iter().filter(|(group, _)| *group == name);
    let versions: Vec<Value> = of_group.map(|(group, version)| aggregated_version(group, version)).collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_version(group: &str, version: &str) -> Value {
    aggregated_version_of(version, of_version(group, version))
}

/// The rows of one group-version in the aggregated form.
pub fn aggregated_version_of<'a>(version: &str, resources: impl Iterator<Item = &'a Resource>) -> Value {
    let resources: Vec<Value> = resources.map(aggregated_resource).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("resource".into(), resource.name.into());
    // Of definitions upstream tells everything.
    let own = resource.custom.as_ref().map(|_| (resource.group, resource.version));
    entry.insert("responseKind".into(), response_kind(own, resource.kind));
    entry.insert("scope".into(), if resource.namespaced() { "Namespaced" } else { "Cluster" }.into());
    entry.insert("singularResource".into(), resource.singular.into());
    entry.insert("verbs".into(), json!(resource.verbs));
    names(resource, &mut entry);
    if !resource.subresources.is_empty() {
        entry.insert(
            "subresources".into(),
            resource.subresources.iter().map(|sub| aggregated_subresource(sub, own)).collect(),
        );
    }
    Value::Object(entry)
}

fn aggregated_subresource(sub: &Subresource, own: Option<(&str, &str)>) -> Value {
    let kind = response_kind(sub.group_version.or(own), sub.kind);
    json!({"subresource": sub.name, "verbs": sub.verbs, "responseKind": kind})
}

/// Group and version are empty where they are those of the document.
fn response_kind(group_version: Option<(&str, &str)>, kind: &str) -> Value {
    let (group, version) = group_version.unwrap_or_default();
    json!({"group": group, "version": version, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_versions_come_first() {
        assert_eq!(group("autoscaling", ALL).unwrap()["preferredVersion"]["version"], "v2");
        assert_eq!(group("nope", ALL), None);
        assert!(resource_list("apps", "v1").unwrap()["resources"].as_array().unwrap().len() > 5);
        assert_eq!(aggregated(true, AggregatedVersion::V2, ALL)["items"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_served_is_left_out() {
        let certificates = group("certificates.k8s.io", &enabled_by_default).unwrap();
        assert_eq!(certificates["versions"].as_array().unwrap().len(), 1);
        assert_eq!(group("internal.apiserver.k8s.io", &enabled_by_default), None);
        assert!(!groups(&enabled_by_default).contains(&"storagemigration.k8s.io"));
    }
}
