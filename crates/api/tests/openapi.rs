//! OpenAPI, compared with the documents of an upstream server, descriptions aside.

mod shared;

use std::collections::BTreeMap;

use ferry_api::{Map, Value, discovery::ALL_ENABLED, openapi};
use shared::{differences, fixture, fixtures, report};

/// Drops descriptions, and the wrapper that a reference has only to carry one. The recorded documents have no version.
fn bare(value: Value) -> Value {
    match value {
        Value::Object(mut map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            if map.contains_key("title") && map.contains_key("version") {
                map.insert("version".into(), "unversioned".into());
            }
            let map: Map = map.into_iter().map(|(key, value)| (key, bare(value))).collect();
            match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) if map.len() == 1 => only.clone(),
                _ => Value::Object(map),
            }
        }
        Value::Array(list) => list.into_iter().map(bare).collect(),
        other => other,
    }
}

/// Parameters that stand once are put where they are referred to: their names are hashes over descriptions.
fn inlined(mut document: Value) -> Value {
    let parameters = document["parameters"].take();
    document.as_object_mut().unwrap().remove("parameters");
    fn walk(value: &mut Value, parameters: &Value) {
        let name = value["$ref"].as_str().and_then(|name| name.strip_prefix("#/parameters/"));
        if let Some(found) = name.map(|name| parameters[name].clone()) {
            *value = found;
            return;
        }
        match value {
            Value::Object(map) => map.values_mut().for_each(|value| walk(value, parameters)),
            Value::Array(list) => list.iter_mut().for_each(|value| walk(value, parameters)),
            _ => {}
        }
    }
    walk(&mut document["paths"], &parameters);
    document
}

#[test]
fn version_3_is_upstreams() {
    let Some(files) = fixtures("fixtures/openapi/v3") else { return };
    let mut found = Vec::new();
    for name in &files {
        let path = name.trim_end_matches("_openapi.json").replace("__", "/");
        let want = bare(fixture(&format!("fixtures/openapi/v3/{name}")));
        let got = bare(openapi::document_at(&path).unwrap_or_default());
        differences(&path, &want, &got, &mut found);
    }
    let index = openapi::index(ALL_ENABLED);
    assert_eq!(index["paths"].as_object().unwrap().len(), files.len(), "{index}");
    report("OpenAPI 3", files.len(), &found);
}

#[test]
fn version_2_is_upstreams() {
    if fixtures("fixtures/openapi").is_none() {
        return;
    }
    let want = bare(inlined(fixture("fixtures/openapi/swagger.json")));
    let got = bare(inlined(openapi::v2(ALL_ENABLED)));
    let mut found = Vec::new();
    differences("", &want, &got, &mut found);
    report("OpenAPI 2", 1, &found);
}

/// The descriptions of properties, by component and field.
fn descriptions(schemas: &Value) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (component, schema) in schemas.as_object().into_iter().flatten() {
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(text) = property["description"].as_str() {
                out.insert(format!("{component}.{field}"), text.to_owned());
            }
        }
    }
    out
}

#[test]
fn most_descriptions_are_upstreams() {
    if fixtures("fixtures/openapi").is_none() {
        return;
    }
    let want = descriptions(&fixture("fixtures/openapi/swagger.json")["definitions"]);
    let got = descriptions(&openapi::v2(ALL_ENABLED)["definitions"]);
    let same = want.iter().filter(|(field, text)| got.get(*field) == Some(*text)).count();
    println!("descriptions: {} upstream, {} here, {same} the same", want.len(), got.len());
    // Where the crate that has the texts was not at hand there are hardly any.
    assert!(same * 10 > want.len() * 9 || same < 10, "{same} of {}", want.len());
}
