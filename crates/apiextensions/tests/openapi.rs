//! The OpenAPI documents of a custom resource equal those of kube-apiserver 1.36.4 for the same CRD, except descriptions
//! and the schemas of its kinds. Group and kind have a dash, the kind ends in `Options`, and one of the two versions has
//! `status` and `scale`.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Value,
    openapi::{custom_resource_document, custom_resource_paths_v2},
    schema::Resource,
};
use ferry_apiextensions::{
    CrdInfo,
    openapi::{OpenApiVersion, version_schemas},
};

const DEFINITION: &str = include_str!("openapi/definition.json");
/// The paths, which are equal in both OpenAPI versions.
const PATHS: &str = include_str!("openapi/paths.txt");
/// The components of each OpenAPI v3 document, with their kinds.
const COMPONENTS: &str = include_str!("openapi/components.txt");

fn definition() -> Arc<CrdInfo> {
    let mut object: Value = serde_json::from_str(DEFINITION).unwrap();
    object["status"]["acceptedNames"] = object["spec"]["names"].clone();
    let document = object.to_string().into();
    Arc::new(CrdInfo::new(&object, &document).unwrap())
}

fn documents() -> Vec<Value> {
    let definition = definition();
    let document = |(at, row): (usize, Arc<Resource>)| {
        custom_resource_document(&[&*row], version_schemas(&definition, at, OpenApiVersion::V3))
    };
    definition.served_resources().into_iter().enumerate().map(|pair| document(pair).unwrap()).collect()
}

#[test]
fn v3_paths_match_upstream() {
    let documents = documents();
    let paths = documents.iter().flat_map(|document| document["paths"].as_object().unwrap());
    assert_same_lines(&paths.map(|(path, item)| format_path(path, item, &Value::Null)).collect::<String>(), PATHS);
}

#[test]
fn v2_paths_match_upstream() {
    let rows = definition().served_resources();
    let rows: Vec<&Resource> = rows.iter().map(|row| &**row).collect();
    let mut paths = BTreeMap::new();
    let shared: Value =
        custom_resource_paths_v2(&rows, |path, item| _ = paths.insert(path, item)).into_iter().collect();
    assert_same_lines(&paths.iter().map(|(path, item)| format_path(path, item, &shared)).collect::<String>(), PATHS);
}

#[test]
fn components_match_upstream() {
    let mut text = String::new();
    for document in documents() {
        text += &format!("{} {}\n", document["info"]["title"], document["info"]["version"]);
        assert_eq!(document["components"].as_object().unwrap().len(), 1, "nothing but schemas");
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().map(format_kind);
            text += &format!("  {name}: {}\n", kinds.collect::<Vec<_>>().join(", "));
        }
    }
    assert_same_lines(&text, COMPONENTS);
}

/// Panics with the first line that differs.
fn assert_same_lines(got: &str, want: &str) {
    let differs = got.lines().zip(want.lines()).position(|(got, want)| got.trim_end() != want.trim_end());
    if let Some(at) = differs {
        panic!("line {}:\n{}\ninstead of\n{}", at + 1, got.lines().nth(at).unwrap(), want.lines().nth(at).unwrap());
    }
    assert_eq!(got.lines().count(), want.lines().count());
}

/// Formats a path: its shared parameters and its operations.
fn format_path(path: &str, item: &Value, shared: &Value) -> String {
    let mut text = format!("{path} {}\n", format_parameters(item, shared));
    for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
        let of = |name: &str| operation[name].as_str().unwrap().to_owned();
        let (tag, kind) = (&operation["tags"][0], format_kind(&operation["x-kubernetes-group-version-kind"]));
        text += &format!("  {method} {} {tag} {} {kind}\n", of("operationId"), of("x-kubernetes-action"));
        text += &format!("    takes {}\n", format_parameters(operation, shared));
        text += &format!("    carries {}\n", format_body(operation, shared));
        for (code, answer) in operation["responses"].as_object().unwrap() {
            text += &format!("    {code} {}\n", format_content(answer, &operation["produces"]));
        }
    }
    text
}

fn format_kind(kind: &Value) -> String {
    let part = |name: &str| kind[name].as_str().unwrap();
    format!("{}/{} {}", part("group"), part("version"), part("kind"))
}

/// Formats parameters as `{name} limit:integer`, without the body, which is a parameter in OpenAPI v2.
fn format_parameters(part: &Value, shared: &Value) -> String {
    let mut all: Vec<String> =
        parameter_values(part, shared).filter(|one| one["in"] != "body").map(format_parameter).collect();
    all.sort();
    all.join(" ")
}

fn parameter_values<'a>(part: &'a Value, shared: &'a Value) -> impl Iterator<Item = &'a Value> {
    part["parameters"].as_array().into_iter().flatten().map(|one| match one["$ref"].as_str() {
        Some(name) => &shared[name.trim_start_matches("#/parameters/")],
        None => one,
    })
}

fn format_parameter(parameter: &Value) -> String {
    let form = if parameter["schema"].is_object() { &parameter["schema"] } else { parameter };
    let name = parameter["name"].as_str().unwrap();
    match (parameter["in"].as_str(), form["type"].as_str()) {
        (Some("path"), _) => format!("{{{name}}}"),
        (_, ty) => format!("{name}:{}", ty.unwrap_or_default()),
    }
}

/// Formats the body of an operation.
fn format_body(operation: &Value, shared: &Value) -> String {
    let in_v2 = parameter_values(operation, shared).find(|one| one["in"] == "body");
    let Some(body) = in_v2.or_else(|| operation.get("requestBody")) else { return "nothing".into() };
    let must = if body["required"] == true { "always " } else { "" };
    format!("{must}{}", format_content(body, &operation["consumes"]))
}

/// Formats a schema and its media types, which enclose it in OpenAPI v3 and are siblings in v2.
fn format_content(part: &Value, forms: &Value) -> String {
    let name = |schema: &Value| schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    match (part["content"].as_object(), part.get("schema")) {
        (Some(content), _) => {
            let forms: Vec<&str> = content.keys().map(String::as_str).collect();
            format!("{} as {}", name(&content[forms[0]]["schema"]), sort_media_types(forms))
        }
        (None, Some(schema)) => {
            let forms = forms.as_array().unwrap().iter().filter_map(Value::as_str).collect();
            format!("{} as {}", name(schema), sort_media_types(forms))
        }
        (None, None) => "nothing".into(),
    }
}

fn sort_media_types(mut forms: Vec<&str>) -> String {
    forms.sort_unstable();
    forms.join(" ")
}
