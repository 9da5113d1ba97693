//! Converts the legacy `APIResourceList` of a version into its entry of aggregated discovery.

use api::{Map, Value, meta};
use serde_json::json;

/// Builds the entry of a version from its resource list.
pub fn version_entry(version: &str, list: &[Value]) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    let name = |entry: &Value| meta::string_at(entry, &["name"]).to_owned();
    for entry in list.iter().filter(|entry| !name(entry).contains('/')) {
        let mut resource = json!({"resource": name(entry), "responseKind": response_kind(entry), "scope": resource_scope(entry),
            "singularResource": meta::string_at(entry, &["singularName"]), "verbs": entry["verbs"]});
        for field in ["shortNames", "categories"] {
            if let Some(names) = entry.get(field) {
                resource[field] = names.clone();
            }
        }
        resources.push(resource);
    }
    for entry in list {
        let whole = name(entry);
        let Some((parent, subresource)) = whole.split_once('/') else { continue };
        let part = json!({"subresource": subresource, "responseKind": response_kind(entry), "verbs": entry["verbs"]});
        let parent = parent_of(&mut resources, parent, entry);
        match parent.get_mut("subresources").and_then(Value::as_array_mut) {
            Some(parts) => parts.push(part),
            None => parent["subresources"] = json!([part]),
        }
    }
    complete_entry(json!({"version": version, "resources": resources}))
}

/// The entry of a subresource's parent; a missing one is added.
fn parent_of<'a>(resources: &'a mut Vec<Value>, name: &str, part: &Value) -> &'a mut Value {
    let at = resources.iter().position(|resource| resource["resource"] == name).unwrap_or_else(|| {
        resources.push(json!({"resource": name, "responseKind": empty_kind(), "scope": resource_scope(part),
            "singularResource": "", "verbs": null}));
        resources.len() - 1
    });
    &mut resources[at]
}

fn resource_scope(entry: &Value) -> &'static str {
    if entry["namespaced"] == true { "Namespaced" } else { "Cluster" }
}

fn response_kind(entry: &Value) -> Value {
    let text = |field: &str| meta::string_at(entry, &[field]);
    json!({"group": text("group"), "version": text("version"), "kind": text("kind")})
}

fn empty_kind() -> Value {
    json!({"group": "", "version": "", "kind": ""})
}

/// Adds missing response kinds, which some clients require, and marks the entry as current.
pub fn complete_entry(mut entry: Value) -> Value {
    let give_kind = |one: &mut Value| {
        let fields: Option<&mut Map> = one.as_object_mut();
        fields.map(|fields| fields.entry("responseKind").or_insert_with(empty_kind));
    };
    for resource in entry.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten() {
        give_kind(resource);
        let parts = resource.get_mut("subresources").and_then(Value::as_array_mut);
        parts.into_iter().flatten().for_each(give_kind);
    }
    entry["freshness"] = "Current".into();
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_are_nested_in_their_resource() {
        let list = [
            json!({"name": "things/status", "namespaced": true, "kind": "Thing", "verbs": ["get"]}),
            json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["list"],
                "shortNames": ["th"]}),
            json!({"name": "lost/part", "namespaced": false, "kind": "", "verbs": ["create"]}),
        ];
        let nothing = json!({"group": "", "version": "", "kind": ""});
        let thing = json!({"group": "", "version": "", "kind": "Thing"});
        let want = json!({"version": "v1", "freshness": "Current", "resources": [
            {"resource": "things", "responseKind": thing, "scope": "Namespaced", "singularResource": "thing",
                "verbs": ["list"], "shortNames": ["th"],
                "subresources": [{"subresource": "status", "responseKind": thing, "verbs": ["get"]}]},
            {"resource": "lost", "responseKind": nothing, "scope": "Cluster", "singularResource": "", "verbs": null,
                "subresources": [{"subresource": "part", "responseKind": nothing, "verbs": ["create"]}]},
        ]});
        assert_eq!(version_entry("v1", &list), want);
    }
}
