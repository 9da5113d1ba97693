//! Merges OpenAPI v2 documents of several servers. The first server keeps a duplicate path; of two different
//! definitions with one name the second is renamed.

use std::collections::{BTreeSet, HashMap};

use api::{Map, Value};

const KINDS: &str = "x-kubernetes-group-version-kind";
/// The parts of a document with named entries, and their reference prefixes.
const NAMED: [(&str, &str); 2] = [("definitions", "#/definitions/"), ("parameters", "#/parameters/")];

/// Keeps the paths with a prefix and the definitions that they use.
pub fn filter_by_prefix(document: Value, prefix: &str) -> Value {
    retain_paths(document, |path| path.starts_with(prefix))
}

/// Keeps the selected paths and removes definitions that only the others used.
fn retain_paths(mut document: Value, keep: impl Fn(&str) -> bool) -> Value {
    let before = used_definitions(&document);
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        paths.retain(|path, _| keep(path));
    }
    let after = used_definitions(&document);
    if let Some(definitions) = document.get_mut("definitions").and_then(Value::as_object_mut) {
        definitions.retain(|name, _| after.contains(name) || !before.contains(name));
    }
    document
}

/// The names of all definitions that paths use.
fn used_definitions(document: &Value) -> BTreeSet<String> {
    let (mut found, mut waiting) = (BTreeSet::new(), Vec::new());
    collect_references(&document["paths"], &mut waiting);
    collect_references(&document["parameters"], &mut waiting);
    while let Some(name) = waiting.pop() {
        if found.insert(name.clone()) {
            collect_references(&document["definitions"][&name], &mut waiting);
        }
    }
    found
}

fn collect_references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let to = fields.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix(NAMED[0].1));
            out.extend(to.map(str::to_owned));
            fields.values().for_each(|field| collect_references(field, out));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, out)),
        _ => {}
    }
}

/// Merges the document of another server.
pub fn merge_document(into: &mut Value, other: &Value) {
    let known = |path: &str| into["paths"].get(path).is_some();
    let paths = other["paths"].as_object();
    if paths.is_none_or(|paths| paths.keys().all(|path| known(path))) {
        return;
    }
    let mut other = retain_paths(other.clone(), |path| !known(path));
    for (part, prefix) in NAMED {
        let renames = conflicting_names(&into[part], &other[part], prefix);
        if !renames.is_empty() {
            rename_part(&mut other, part, prefix, &renames);
        }
    }
    for part in ["definitions", "parameters", "paths"] {
        add_part(into, &mut other, part);
    }
}

/// Adds missing entries; an existing definition is equal and gets the additional group-version-kinds.
fn add_part(into: &mut Value, other: &mut Value, part: &str) {
    let Some(more) = other.get_mut(part).map(Value::take) else { return };
    let Value::Object(more) = more else { return };
    if !into[part].is_object() {
        into[part] = Value::Object(Map::new());
    }
    let Some(known) = into[part].as_object_mut() else { return };
    for (name, value) in more {
        match known.get_mut(&name) {
            None => drop(known.insert(name, value)),
            Some(same) if part == "definitions" => add_kinds(same, &value),
            Some(_) => {}
        }
    }
}

fn add_kinds(known: &mut Value, other: &Value) {
    let Some(more) = other[KINDS].as_array() else { return };
    match known.get_mut(KINDS).and_then(Value::as_array_mut) {
        Some(kinds) => {
            let new: Vec<Value> = more.iter().filter(|kind| !kinds.contains(kind)).cloned().collect();
            kinds.extend(new);
        }
        None => known[KINDS] = more.clone().into(),
    }
}

/// New names of conflicting entries.
fn conflicting_names(known: &Value, other: &Value, prefix: &str) -> HashMap<String, String> {
    let mut renames = HashMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (name, value) in other.as_object().into_iter().flatten() {
        if known.get(name).is_none_or(|known| is_same_definition(known, value, prefix)) {
            continue;
        }
        let mut number = 2;
        let new = loop {
            let candidate = format!("{name}_v{number}");
            match known.get(&candidate) {
                Some(known) if is_same_definition(known, value, prefix) => break candidate,
                None if !taken.contains(&candidate) && other.get(&candidate).is_none() => break candidate,
                _ => number += 1,
            }
        };
        taken.insert(new.clone());
        renames.insert(name.clone(), new);
    }
    renames
}

/// Whether two definitions are equal apart from their group-version-kinds.
fn is_same_definition(one: &Value, other: &Value, prefix: &str) -> bool {
    if prefix != NAMED[0].1 {
        return one == other;
    }
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let count = |fields: &Map| fields.keys().filter(|name| *name != KINDS).count();
    count(one) == count(other) && one.iter().all(|(name, value)| name == KINDS || other.get(name) == Some(value))
}

fn rename_part(document: &mut Value, part: &str, prefix: &str, renames: &HashMap<String, String>) {
    rewrite_references(document, prefix, renames);
    let Some(Value::Object(named)) = document.get_mut(part).map(Value::take) else { return };
    let renamed = named.into_iter().map(|(name, value)| (renames.get(&name).cloned().unwrap_or(name), value));
    document[part] = Value::Object(renamed.collect());
}

fn rewrite_references(value: &mut Value, prefix: &str, renames: &HashMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let new =
                    field.as_str().filter(|_| name == "$ref").and_then(|to| renames.get(to.strip_prefix(prefix)?));
                match new.map(|new| format!("{prefix}{new}")) {
                    Some(new) => *field = new.into(),
                    None => rewrite_references(field, prefix, renames),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite_references(item, prefix, renames)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refers(name: &str) -> Value {
        json!({"get": {"schema": {"$ref": format!("#/definitions/{name}")}}})
    }

    #[test]
    fn filter_keeps_used_definitions() {
        let document = json!({
            "paths": {"/apis/g/v1/a": refers("A"), "/apis/g/v2/b": refers("B")},
            "definitions": {"A": {"x": {"$ref": "#/definitions/Deep"}}, "B": {}, "Deep": {}, "Unused": {}},
        });
        let kept = filter_by_prefix(document, "/apis/g/v1/");
        let names = |part: &str| kept[part].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            (names("paths"), names("definitions")),
            (vec!["/apis/g/v1/a".to_owned()], vec!["A".to_owned(), "Deep".to_owned(), "Unused".to_owned()])
        );
    }

    #[test]
    fn conflicting_definition_is_renamed() {
        let mut into = json!({
            "paths": {"/own": refers("Same"), "/both": refers("Same")},
            "definitions": {"Same": {"type": "object", KINDS: [{"kind": "X"}]}, "Other": {"type": "string"},
                "Other_v2": {"type": "integer"}},
        });
        let other = json!({
            "paths": {"/new": refers("Other"), "/both": refers("Lost"), "/more": refers("Same")},
            "definitions": {"Same": {"type": "object", KINDS: [{"kind": "Y"}]}, "Other": {"type": "number"}, "Lost": {}},
        });
        merge_document(&mut into, &other);
        let want = json!({
            "paths": {"/own": refers("Same"), "/both": refers("Same"), "/new": refers("Other_v3"), "/more": refers("Same")},
            "definitions": {"Same": {"type": "object", KINDS: [{"kind": "X"}, {"kind": "Y"}]},
                "Other": {"type": "string"}, "Other_v2": {"type": "integer"}, "Other_v3": {"type": "number"}},
        });
        assert_eq!(into, want);
        merge_document(&mut into, &other);
        assert_eq!(into, want, "what is there already changes nothing");
    }
}
