//! Discovery documents: what the server offers, in the old form and in the aggregated one.

use serde_json::json;

use crate::{
    Value,
    schema::{Resource, Subresource, schema},
};

/// Group and version pairs in order, without repeats.
fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for resource in schema().resources() {
        if !out.contains(&(resource.group, resource.version)) {
            out.push((resource.group, resource.version));
        }
    }
    out
}

/// The groups besides core, in order.
pub fn groups() -> Vec<&'static str> {
    let mut out: Vec<&str> = Vec::new();
    for (group, _) in group_versions() {
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

/// `/apis`
pub fn group_list() -> Value {
    let groups: Vec<Value> = groups().into_iter().filter_map(group_body).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`
pub fn group(name: &str) -> Option<Value> {
    let mut body = group_body(name)?;
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Some(body)
}

fn group_body(name: &str) -> Option<Value> {
    let versions: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| *group == name && !group.is_empty())
        .map(|(group, version)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

/// `/api/v1` and `/apis/<group>/<version>`
pub fn resource_list(group: &str, version: &str) -> Option<Value> {
    let resources: Vec<&Resource> =
        schema().resources().iter().filter(|r| r.group == group && r.version == version).collect();
    let first = resources.first()?;
    let entries: Vec<Value> = resources.iter().flat_map(|resource| resource_entries(resource)).collect();
    let mut body = json!({"kind": "APIResourceList", "groupVersion": first.api_version(), "resources": entries});
    if !group.is_empty() {
        body["apiVersion"] = "v1".into();
    }
    Some(body)
}

fn resource_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = json!({"name": resource.name, "singularName": resource.singular,
        "namespaced": resource.namespaced(), "kind": resource.kind, "verbs": resource.verbs});
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
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
    std::iter::once(entry).chain(subresources).collect()
}

/// The aggregated form of `/api` (`core`) or `/apis`.
pub fn aggregated(core: bool) -> Value {
    let names = if core { vec![""] } else { groups() };
    let items: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let versions: Vec<Value> = group_versions()
                .into_iter()
                .filter(|(group, _)| *group == name)
                .map(|(group, version)| aggregated_version(group, version))
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_version(group: &str, version: &str) -> Value {
    let of_version = schema().resources().iter().filter(|r| r.group == group && r.version == version);
    let resources: Vec<Value> = of_version.map(aggregated_resource).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.name,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": if resource.namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource.subresources.iter().map(|sub| aggregated_subresource(resource, sub)).collect();
    }
    entry
}

fn aggregated_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let (group, version) = sub.group_version.unwrap_or((resource.group, resource.version));
    json!({"subresource": sub.name, "verbs": sub.verbs,
        "responseKind": {"group": group, "version": version, "kind": sub.kind}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_versions_come_first() {
        assert_eq!(group("autoscaling").unwrap()["preferredVersion"]["version"], "v2");
        assert_eq!(group("nope"), None);
        assert!(resource_list("apps", "v1").unwrap()["resources"].as_array().unwrap().len() > 5);
        assert_eq!(aggregated(true)["items"].as_array().unwrap().len(), 1);
    }
}
