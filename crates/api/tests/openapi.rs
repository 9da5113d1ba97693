//! Compares OpenAPI documents with upstream's, apart from descriptions.

mod shared;

use std::collections::BTreeMap;

use ferry_api::{Map, Value, discovery::ALL_ENABLED, openapi};
use shared::{differences, fixture, fixtures, report};

/// Drops descriptions, and the `allOf` around a reference that exists only to carry one. Recorded documents have no
/// version.
fn without_descriptions(value: Value) -> Value {
    match value {
        Value::Object(mut map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            if map.contains_key("title") && map.contains_key("version") {
                map.insert("version".into(), "unversioned".into());
            }
            let map: Map = map.into_iter().map(|(key, value)| (key, without_descriptions(value))).collect();
            match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) if map.len() == 1 => only.clone(),
                _ => Value::Object(map),
            }
        }
        Value::Array(list) => list.into_iter().map(without_descriptions).collect(),
        other => other,
    }
}

/// Inlines shared parameters: their names are hashes over descriptions.
fn inline_parameters(mut document: Value) -> Value {
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
fn v3_documents_equal_upstreams() {
    let Some(files) = fixtures("fixtures/openapi/v3") else { return };
    let mut found = Vec::new();
    for name in &files {
        let path = name.trim_end_matches("_openapi.json").replace("__", "/");
        let want = without_descriptions(fixture(&format!("fixtures/openapi/v3/{name}")));
        let got = without_descriptions(openapi::v3_document(&path).unwrap_or_default());
        differences(&path, &want, &got, &mut found);
    }
    let index = openapi::v3_index(ALL_ENABLED);
    assert_eq!(index["paths"].as_object().unwrap().len(), files.len(), "{index}");
    report("OpenAPI 3", files.len(), &found);
}

#[test]
fn v2_document_equals_upstreams() {
    if fixtures("fixtures/openapi").is_none() {
        return;
    }
    let want = without_descriptions(inline_parameters(fixture("fixtures/openapi/swagger.json")));
    let got = without_descriptions(inline_parameters(openapi::v2_document(ALL_ENABLED)));
    let mut found = Vec::new();
    differences("", &want, &got, &mut found);
    report("OpenAPI 2", 1, &found);
}

/// The descriptions of properties, by component and field.
fn property_descriptions(schemas: &Value) -> BTreeMap<String, String> {
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
fn most_descriptions_equal_upstreams() {
    if fixtures("fixtures/openapi").is_none() {
        return;
    }
    let want = property_descriptions(&fixture("fixtures/openapi/swagger.json")["definitions"]);
    let got = property_descriptions(&openapi::v2_document(ALL_ENABLED)["definitions"]);
    let same = want.iter().filter(|(field, text)| got.get(*field) == Some(*text)).count();
    println!("descriptions: {} upstream, {} here, {same} the same", want.len(), got.len());
    // There are few if the crate with the descriptions was unavailable at build time.
    assert!(same * 10 > want.len() * 9 || same < 10, "{same} of {}", want.len());
}
