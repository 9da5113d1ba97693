//! The entry of a version in aggregated discovery, from what older servers say of it: a plain list of resources.

use api::{Map, Value, meta};
use serde_json::json;

/// The entry of a version with these resources.
pub fn version(version: &str, list: &[Value]) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    let name = |entry: &Value| meta::string_at(entry, &["name"]).to_owned();
    for entry in list.iter().filter(|entry| !name(entry).contains('/')) {
        let mut resource = json!({"resource": name(entry), "responseKind": kind(entry), "scope": scope(entry),
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
        let part = json!({"subresource": subresource, "responseKind": kind(entry), "verbs": entry["verbs"]});
        let parent = parent_of(&mut resources, parent, entry);
        match parent.get_mut("subresources").and_then(Value::as_array_mut) {
            Some(parts) => parts.push(part),
            None => parent["subresources"] = json!([part]),
        }
    }
    completed(json!({"version": version, "resources": resources}))
}

/// The resource that a subresource is of; one that is not told of is made up.
fn parent_of<'a>(resources: &'a mut Vec<Value>, name: &str, part: &Value) -> &'a mut Value {
    let at = resources.iter().position(|resource| resource["resource"] == name).unwrap_or_else(|| {
        resources.push(json!({"resource": name, "responseKind": empty_kind(), "scope": scope(part),
            "singularResource": "", "verbs": null}));
        resources.len() - 1
    });
    &mut resources[at]
}

fn scope(entry: &Value) -> &'static str {
    if entry["namespaced"] == true { "Namespaced" } else { "Cluster" }
}

fn kind(entry: &Value) -> Value {
    let text = |field: &str| meta::string_at(entry, &[field]);
    json!({"group": text("group"), "version": text("version"), "kind": text("kind")})
}

fn empty_kind() -> Value {
    json!({"group": "", "version": "", "kind": ""})
}

/// The entry with what some clients cannot do without, and the word that it is current.
pub fn completed(mut entry: Value) -> Value {
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
    fn subresources_find_their_parents() {
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
        assert_eq!(version("v1", &list), want);
    }
}
