//! Documents of OpenAPI 2 of several servers as one. Of a path that two have the first is kept; of two definitions with one
//! name that say different things the second gets another name.

use std::collections::{BTreeSet, HashMap};

use api::{Map, Value};

const KINDS: &str = "x-kubernetes-group-version-kind";
/// The parts of a document that others refer to by name.
const NAMED: [(&str, &str); 2] = [("definitions", "#/definitions/"), ("parameters", "#/parameters/")];

/// What of a document is about paths with a prefix.
pub fn about(document: Value, prefix: &str) -> Value {
    kept(document, |path| path.starts_with(prefix))
}

/// A document without some paths, and without the definitions that only those used.
fn kept(mut document: Value, keep: impl Fn(&str) -> bool) -> Value {
    let before = used(&document);
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        paths.retain(|path, _| keep(path));
    }
    let after = used(&document);
    if let Some(definitions) = document.get_mut("definitions").and_then(Value::as_object_mut) {
        definitions.retain(|name, _| after.contains(name) || !before.contains(name));
    }
    document
}

/// The names of all definitions that paths lead to.
fn used(document: &Value) -> BTreeSet<String> {
    let (mut found, mut waiting) = (BTreeSet::new(), Vec::new());
    references(&document["paths"], &mut waiting);
    references(&document["parameters"], &mut waiting);
    while let Some(name) = waiting.pop() {
        if found.insert(name.clone()) {
            references(&document["definitions"][&name], &mut waiting);
        }
    }
    found
}

fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let to = fields.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix(NAMED[0].1));
            out.extend(to.map(str::to_owned));
            fields.values().for_each(|field| references(field, out));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, out)),
        _ => {}
    }
}

/// Adds what another server says to a document.
pub fn merge(into: &mut Value, other: &Value) {
    let known = |path: &str| into["paths"].get(path).is_some();
    let paths = other["paths"].as_object();
    if paths.is_none_or(|paths| paths.keys().all(|path| known(path))) {
        return;
    }
    let mut other = kept(other.clone(), |path| !known(path));
    for (part, prefix) in NAMED {
        let renames = renames(&into[part], &other[part], prefix);
        if !renames.is_empty() {
            rename(&mut other, part, prefix, &renames);
        }
    }
    for part in ["definitions", "parameters", "paths"] {
        add(into, &mut other, part);
    }
}

/// Moves what is not there yet; what is there says the same, but may be of more kinds.
fn add(into: &mut Value, other: &mut Value, part: &str) {
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

/// The names that would mean two things, each with another that does not.
fn renames(known: &Value, other: &Value, prefix: &str) -> HashMap<String, String> {
    let mut renames = HashMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (name, value) in other.as_object().into_iter().flatten() {
        if known.get(name).is_none_or(|known| same(known, value, prefix)) {
            continue;
        }
        let mut number = 2;
        let new = loop {
            let candidate = format!("{name}_v{number}");
            match known.get(&candidate) {
                Some(known) if same(known, value, prefix) => break candidate,
                None if !taken.contains(&candidate) && other.get(&candidate).is_none() => break candidate,
                _ => number += 1,
            }
        };
        taken.insert(new.clone());
        renames.insert(name.clone(), new);
    }
    renames
}

/// Whether two definitions say the same, whichever kinds they are of.
fn same(one: &Value, other: &Value, prefix: &str) -> bool {
    if prefix != NAMED[0].1 {
        return one == other;
    }
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let count = |fields: &Map| fields.keys().filter(|name| *name != KINDS).count();
    count(one) == count(other) && one.iter().all(|(name, value)| name == KINDS || other.get(name) == Some(value))
}

fn rename(document: &mut Value, part: &str, prefix: &str, renames: &HashMap<String, String>) {
    redirect(document, prefix, renames);
    let Some(Value::Object(named)) = document.get_mut(part).map(Value::take) else { return };
    let renamed = named.into_iter().map(|(name, value)| (renames.get(&name).cloned().unwrap_or(name), value));
    document[part] = Value::Object(renamed.collect());
}

fn redirect(value: &mut Value, prefix: &str, renames: &HashMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let new =
                    field.as_str().filter(|_| name == "$ref").and_then(|to| renames.get(to.strip_prefix(prefix)?));
                match new.map(|new| format!("{prefix}{new}")) {
                    Some(new) => *field = new.into(),
                    None => redirect(field, prefix, renames),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redirect(item, prefix, renames)),
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
    fn only_what_is_about_the_version_is_kept() {
        let document = json!({
            "paths": {"/apis/g/v1/a": refers("A"), "/apis/g/v2/b": refers("B")},
            "definitions": {"A": {"x": {"$ref": "#/definitions/Deep"}}, "B": {}, "Deep": {}, "Unused": {}},
        });
        let kept = about(document, "/apis/g/v1/");
        let names = |part: &str| kept[part].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            (names("paths"), names("definitions")),
            (vec!["/apis/g/v1/a".to_owned()], vec!["A".to_owned(), "Deep".to_owned(), "Unused".to_owned()])
        );
    }

    #[test]
    fn what_differs_gets_another_name() {
        let mut into = json!({
            "paths": {"/own": refers("Same"), "/both": refers("Same")},
            "definitions": {"Same": {"type": "object", KINDS: [{"kind": "X"}]}, "Other": {"type": "string"},
                "Other_v2": {"type": "integer"}},
        });
        let other = json!({
            "paths": {"/new": refers("Other"), "/both": refers("Lost"), "/more": refers("Same")},
            "definitions": {"Same": {"type": "object", KINDS: [{"kind": "Y"}]}, "Other": {"type": "number"}, "Lost": {}},
        });
        merge(&mut into, &other);
        let want = json!({
            "paths": {"/own": refers("Same"), "/both": refers("Same"), "/new": refers("Other_v3"), "/more": refers("Same")},
            "definitions": {"Same": {"type": "object", KINDS: [{"kind": "X"}, {"kind": "Y"}]},
                "Other": {"type": "string"}, "Other_v2": {"type": "integer"}, "Other_v3": {"type": "number"}},
        });
        assert_eq!(into, want);
        merge(&mut into, &other);
        assert_eq!(into, want, "what is there already changes nothing");
    }
}
