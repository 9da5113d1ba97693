//! OpenAPI version 3, one document per group and version, made from the tables.

use std::{collections::BTreeSet, fmt::Write};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    Map, Value,
    discovery::groups,
    schema::{Field, ListKind, Resource, Ty, TypeId, schema},
};

/// `/openapi/v3`: where the documents are, with a hash of each for caches.
pub fn index() -> Value {
    let mut paths = Map::new();
    for (group, version) in documents() {
        let Some(body) = document(group, version) else { continue };
        let path = path_of(group, version);
        let url = format!("/openapi/v3/{path}?hash={}", hash(&body));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn documents() -> Vec<(&'static str, &'static str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for group in std::iter::once("").chain(groups()) {
        for resource in schema().resources().iter().filter(|r| r.group == group) {
            if !out.contains(&(group, resource.version)) {
                out.push((group, resource.version));
            }
        }
    }
    out
}

/// `api/v1` or `apis/apps/v1`.
fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn hash(body: &Value) -> String {
    Sha256::digest(body.to_string()).iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02X}");
        out
    })
}

/// The document of one group and version.
pub fn document(group: &str, version: &str) -> Option<Value> {
    let resources: Vec<&Resource> =
        schema().resources().iter().filter(|r| r.group == group && r.version == version).collect();
    resources.first()?;
    let mut needed = BTreeSet::new();
    let mut paths = Map::new();
    for resource in resources {
        collect(resource.ty, &mut needed);
        add_paths(resource, &mut paths);
    }
    let schemas: Map = needed.iter().map(|name| (component(name), type_schema(name))).collect();
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::KUBERNETES_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn collect(id: TypeId, into: &mut BTreeSet<String>) {
    let ty = schema().get(id);
    if into.insert(ty.name.clone()) {
        ty.fields.iter().filter_map(|field| field.ty.element_struct()).for_each(|id| collect(id, into));
    }
}

/// `core/v1.Pod` is `io.k8s.api.core.v1.Pod`.
fn component(name: &str) -> String {
    let dotted = name.replace('/', ".");
    match name.split('/').next() {
        Some("meta") => format!("io.k8s.apimachinery.pkg.apis.{dotted}"),
        Some("apiextensions") => format!("io.k8s.apiextensions-apiserver.pkg.apis.{dotted}"),
        Some("apiregistration") => format!("io.k8s.kube-aggregator.pkg.apis.{dotted}"),
        _ => format!("io.k8s.api.{dotted}"),
    }
}

fn type_schema(name: &str) -> Value {
    let Some(id) = schema().type_named(name) else { return json!({}) };
    let ty = schema().get(id);
    let mut properties: Map = ty.fields.iter().map(|field| (field.name.to_owned(), field_schema(field))).collect();
    let kinds: Vec<Value> = schema()
        .resources()
        .iter()
        .filter(|resource| resource.ty == id)
        .map(|r| json!({"group": r.group, "version": r.version, "kind": r.kind}))
        .collect();
    if !kinds.is_empty() {
        properties.insert("apiVersion".into(), json!({"type": "string"}));
        properties.insert("kind".into(), json!({"type": "string"}));
    }
    let mut out = json!({"type": "object", "properties": properties});
    let required: Vec<&str> = ty.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    if !kinds.is_empty() {
        out["x-kubernetes-group-version-kind"] = Value::Array(kinds);
    }
    if ty.atomic {
        out["x-kubernetes-map-type"] = "atomic".into();
    }
    out
}

fn field_schema(field: &Field) -> Value {
    let mut out = ty_schema(&field.ty);
    if let Some(default) = &field.default {
        out["default"] = default.clone();
    }
    if matches!(field.ty, Ty::List(_)) {
        match &field.list {
            ListKind::Atomic => out["x-kubernetes-list-type"] = "atomic".into(),
            ListKind::Set => out["x-kubernetes-list-type"] = "set".into(),
            ListKind::Map(keys) => {
                out["x-kubernetes-list-type"] = "map".into();
                out["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
    }
    if let Some(key) = field.patch.merge_key {
        out["x-kubernetes-patch-strategy"] = "merge".into();
        if !key.is_empty() {
            out["x-kubernetes-patch-merge-key"] = key.into();
        }
    } else if field.patch.retain_keys {
        out["x-kubernetes-patch-strategy"] = "retainKeys".into();
    }
    out
}

fn ty_schema(ty: &Ty) -> Value {
    match ty {
        Ty::String | Ty::Duration | Ty::Quantity => json!({"type": "string"}),
        Ty::Bool => json!({"type": "boolean"}),
        Ty::Int32 => json!({"type": "integer", "format": "int32"}),
        Ty::Int64 => json!({"type": "integer", "format": "int64"}),
        Ty::Double => json!({"type": "number", "format": "double"}),
        Ty::Bytes => json!({"type": "string", "format": "byte"}),
        Ty::Time | Ty::MicroTime => json!({"type": "string", "format": "date-time"}),
        Ty::IntOrString => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
        Ty::Raw => json!({"type": "object"}),
        Ty::Struct(id) => {
            let reference = format!("#/components/schemas/{}", component(&schema().get(*id).name));
            json!({"allOf": [{"$ref": reference}]})
        }
        Ty::List(inner) => json!({"type": "array", "items": ty_schema(inner)}),
        Ty::Map(inner) => json!({"type": "object", "additionalProperties": ty_schema(inner)}),
    }
}

fn add_paths(resource: &Resource, paths: &mut Map) {
    let scope = if resource.namespaced() { "/namespaces/{namespace}" } else { "" };
    let base = format!("/{}{scope}/{}", path_of(resource.group, resource.version), resource.name);
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let write = json!([query("dryRun"), query("fieldManager"), query("fieldValidation")]);
    let operation = |action: &str, parameters: &Value| {
        json!({"parameters": parameters, "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK"}}})
    };
    let none = json!([]);
    let verbs = |wanted: &[(&str, &str, &str, bool)]| -> Map {
        let has = |verb: &&(&str, &str, &str, bool)| resource.verbs.contains(&verb.0);
        wanted
            .iter()
            .filter(has)
            .map(|(_, method, action, writes)| {
                ((*method).to_owned(), operation(action, if *writes { &write } else { &none }))
            })
            .collect()
    };
    let collection = verbs(&[("create", "post", "post", true), ("list", "get", "list", false)]);
    let item = verbs(&[
        ("get", "get", "get", false),
        ("update", "put", "put", true),
        ("patch", "patch", "patch", true),
        ("delete", "delete", "delete", false),
    ]);
    for (path, operations) in [(base.clone(), collection), (format!("{base}/{{name}}"), item)] {
        if !operations.is_empty() {
            paths.insert(path, Value::Object(operations));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_resolves() {
        for (group, version) in documents() {
            let body = document(group, version).unwrap();
            let schemas = body["components"]["schemas"].as_object().unwrap();
            let text = body.to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let name = reference.split('"').next().unwrap();
                assert!(schemas.contains_key(name), "{group}/{version}: {name}");
            }
        }
    }

    #[test]
    fn writes_take_field_validation() {
        let body = document("apps", "v1").unwrap();
        let patch = &body["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert!(patch["parameters"].to_string().contains("fieldValidation"));
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    }
}
