//! Discovery documents, aggregated and unaggregated.
//!
//! Disabled group-versions are left out. Order, empty fields and hashes are upstream's: clients cache and compare these
//! documents.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    Value,
    schema::{Resource, Subresource, schema},
};

/// A filter of enabled group-versions.
pub type EnabledFilter<'a> = &'a dyn Fn(&str, &str) -> bool;

/// Enables all group-versions of the schema.
pub const ALL_ENABLED: EnabledFilter<'static> = &|_, _| true;

/// Whether upstream enables a group-version by default: neither alpha nor beta.
pub fn enabled_by_default(_group: &str, version: &str) -> bool {
    !version.contains("alpha") && !version.contains("beta")
}

/// The enabled group-versions in order, without duplicates.
pub fn served_group_versions(enabled: EnabledFilter) -> Vec<(&'static str, &'static str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for resource in schema().resources() {
        let pair = (resource.group, resource.version);
        if !out.contains(&pair) && enabled(pair.0, pair.1) {
            out.push(pair);
        }
    }
    out
}

/// The enabled groups except core, in order.
pub fn served_groups(enabled: EnabledFilter) -> Vec<&'static str> {
    let mut out: Vec<&str> = Vec::new();
    for (group, _) in served_group_versions(enabled) {
        if !group.is_empty() && !out.contains(&group) {
            out.push(group);
        }
    }
    out
}

/// `/api`: `APIVersions`.
pub fn core_versions(server_address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]})
}

/// `/apis`: `APIGroupList` of the enabled group-versions.
pub fn group_list(enabled: EnabledFilter) -> Value {
    let groups: Vec<Value> =
        served_groups(enabled).into_iter().filter_map(|name| served_group_entry(name, enabled)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`: `APIGroup` of the enabled group-versions.
pub fn group_document(name: &str, enabled: EnabledFilter) -> Option<Value> {
    served_group_entry(name, enabled).map(into_group_document)
}

/// Turns a list entry into an `APIGroup` document.
pub fn into_group_document(mut body: Value) -> Value {
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    body
}

/// A group in an `APIGroupList` with its versions, preferred first; `None` without versions.
pub fn group_entry(name: &str, versions: &[&str]) -> Option<Value> {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn served_group_entry(name: &str, enabled: EnabledFilter) -> Option<Value> {
    let served = served_group_versions(enabled).into_iter().filter(|(group, _)| *group == name && !group.is_empty());
    group_entry(name, &served.map(|(_, version)| version).collect::<Vec<_>>())
}

/// `/api/v1` and `/apis/<group>/<version>`: `APIResourceList`.
pub fn resource_list(group: &str, version: &str) -> Option<Value> {
    resource_list_from(resources_of_version(group, version))
}

/// The `APIResourceList` of resources of one group-version; `None` if there are none.
pub fn resource_list_from<'a>(resources: impl Iterator<Item = &'a Resource>) -> Option<Value> {
    let resources: Vec<&Resource> = resources.collect();
    let first = resources.first()?;
    let entries: Vec<Value> = resources.iter().flat_map(|resource| resource_entries(resource)).collect();
    let mut body = json!({"kind": "APIResourceList", "groupVersion": first.api_version(), "resources": entries});
    if !first.group.is_empty() {
        body["apiVersion"] = "v1".into();
    }
    Some(body)
}

fn resources_of_version<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Resource> + 'a {
    schema().resources().iter().filter(move |r| r.group == group && r.version == version)
}

fn resource_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = json!({"name": resource.name, "singularName": resource.singular, "kind": resource.kind,
        "namespaced": resource.is_namespaced(), "verbs": resource.verbs});
    insert_names(resource, &mut entry);
    if resource.verbs.contains(&"watch") {
        entry["storageVersionHash"] = storage_version_hash(resource).into();
    }
    let subresources = resource.subresources.iter().map(|sub| {
        let mut entry = json!({"name": format!("{}/{}", resource.name, sub.name), "singularName": "",
            "namespaced": resource.is_namespaced(), "kind": sub.kind, "verbs": sub.verbs});
        if let Some((group, version)) = sub.group_version {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entry
    });
    std::iter::once(entry).chain(subresources).collect()
}

fn insert_names(resource: &Resource, entry: &mut Value) {
    for (field, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            entry[field] = json!(names);
        }
    }
}

/// The hash by which storage migrators notice a change of the storage version.
fn storage_version_hash(resource: &Resource) -> String {
    let (group, version) = resource.storage_version;
    BASE64_STANDARD.encode(&Sha256::digest(format!("{group}/{version}/{}", resource.kind))[..8])
}

/// The versions of aggregated discovery, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregatedVersion {
    /// `apidiscovery.k8s.io/v2`
    V2,
    /// `apidiscovery.k8s.io/v2beta1`
    V2Beta1,
}

/// Aggregated discovery of `/api` (`core`) or `/apis`, with the enabled group-versions.
pub fn aggregated_document(core: bool, form: AggregatedVersion, enabled: EnabledFilter) -> Value {
    let names = if core { vec![""] } else { served_groups(enabled) };
    let versions = served_group_versions(enabled);
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
    aggregated_version_from(version, resources_of_version(group, version))
}

/// The aggregated discovery of one group-version.
pub fn aggregated_version_from<'a>(version: &str, resources: impl Iterator<Item = &'a Resource>) -> Value {
    let resources: Vec<Value> = resources.map(aggregated_resource).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Upstream fills in group and version for custom resources.
    let own = resource.custom_schema.as_ref().map(|_| (resource.group, resource.version));
    let mut entry = json!({"resource": resource.name, "responseKind": response_kind(own, resource.kind),
        "scope": if resource.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs});
    insert_names(resource, &mut entry);
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource.subresources.iter().map(|sub| aggregated_subresource(sub, own)).collect();
    }
    entry
}

fn aggregated_subresource(sub: &Subresource, own: Option<(&str, &str)>) -> Value {
    let kind = response_kind(sub.group_version.or(own), sub.kind);
    json!({"subresource": sub.name, "verbs": sub.verbs, "responseKind": kind})
}

/// Group and version are empty where they equal the document's.
fn response_kind(group_version: Option<(&str, &str)>, kind: &str) -> Value {
    let (group, version) = group_version.unwrap_or_default();
    json!({"group": group, "version": version, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_version_is_first() {
        assert_eq!(group_document("autoscaling", ALL_ENABLED).unwrap()["preferredVersion"]["version"], "v2");
        assert_eq!(group_document("nope", ALL_ENABLED), None);
        assert!(resource_list("apps", "v1").unwrap()["resources"].as_array().unwrap().len() > 5);
        assert_eq!(aggregated_document(true, AggregatedVersion::V2, ALL_ENABLED)["items"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn disabled_versions_are_left_out() {
        let certificates = group_document("certificates.k8s.io", &enabled_by_default).unwrap();
        assert_eq!(certificates["versions"].as_array().unwrap().len(), 1);
        assert_eq!(group_document("internal.apiserver.k8s.io", &enabled_by_default), None);
        assert!(!served_groups(&enabled_by_default).contains(&"storagemigration.k8s.io"));
    }
}
