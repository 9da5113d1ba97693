//! Compares OpenAPI documents with upstream's, apart from descriptions.

use std::collections::BTreeMap;

use crate::shared::{differences, fixture, fixtures, report};
use ferry_api::{
    Map, Value,
    discovery::{ALL_ENABLED, enabled_by_default},
    openapi,
};
use serde_json::json;

/// Drops descriptions and enumerations, which the recorded documents lack, and the `allOf` around a reference that exists only to carry
/// a description. Recorded documents have no version.
fn without_descriptions(value: Value) -> Value {
    match value {
        Value::Object(mut map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            if map.get("enum").is_some_and(Value::is_array) {
                map.remove("enum");
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
    let plain = |text: &String| text.split("\n\nPossible enum values:").next().map(str::to_owned);
    let same = want.iter().filter(|(field, text)| got.get(*field).and_then(plain).as_ref() == Some(*text)).count();
    println!("descriptions: {} upstream, {} here, {same} the same", want.len(), got.len());
    // There are few if the crate with the descriptions was unavailable at build time.
    assert!(same * 10 > want.len() * 9 || same < 10, "{same} of {}", want.len());
}

/// Counts the enumerations, and the descriptions that list their values, in a document of kube-apiserver 1.36.4.
#[test]
fn enumerations_are_as_many_as_upstreams() {
    let count = |document: &Value| {
        let text = document.to_string();
        (text.matches("\"enum\":").count(), text.matches("Possible enum values:").count())
    };
    let v3 = |path: &str| count(&openapi::v3_document(path).unwrap_or_default()).0;
    let paths = ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/storage.k8s.io/v1"];
    assert_eq!(paths.map(v3), [54, 36, 33, 9]);
    let paths = ["apis/admissionregistration.k8s.io/v1", "apis/networking.k8s.io/v1", "apis/policy/v1"];
    assert_eq!(paths.map(v3), [17, 4, 1]);
    assert_eq!(count(&openapi::v2_document(&enabled_by_default)), (99, 87));
}

#[test]
fn enumerations_list_and_describe_their_values() {
    let schemas = &openapi::v3_document("api/v1").unwrap_or_default()["components"]["schemas"];
    let policy = &schemas["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let text = policy["description"].as_str().unwrap_or_default();
    let values =
        "\n\nPossible enum values:\n - `\"Always\"` means that kubelet always attempts to pull the latest image.";
    assert!(text.contains(values), "{text}");
    let modes = &schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"]["accessModes"];
    assert_eq!(modes["items"]["enum"][0], "ReadOnlyMany");
}
