//! OpenAPI schemas of a CRD version: the CRD's schema plus object metadata. For OpenAPI v2, constructs that v2 clients
//! do not support are removed.

use std::collections::BTreeMap;

use api::{Map, Value, openapi::model_name};
use serde_json::json;

use crate::crd_info::CrdInfo;

/// The OpenAPI version of a published schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenApiVersion {
    /// OpenAPI v2, `/openapi/v2`.
    V2,
    /// OpenAPI v3, `/openapi/v3`.
    V3,
}

impl OpenApiVersion {
    fn schema_reference(self, kind: &str) -> String {
        let prefix = if self == OpenApiVersion::V2 { "definitions" } else { "components/schemas" };
        format!("#/{prefix}/io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")
    }

    /// Builds a `$ref` with a description; OpenAPI v3 wraps it in `allOf`, because siblings of `$ref` are not allowed.
    fn described_reference(self, reference: String, description: &str) -> Value {
        match self {
            OpenApiVersion::V2 => json!({"$ref": reference, "description": description}),
            OpenApiVersion::V3 => json!({"allOf": [{"$ref": reference}], "description": description}),
        }
    }
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized \
     schemas to the latest internal value, and may reject unrecognized values. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the \
     endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

const SELECTABLE: &str = "x-kubernetes-selectable-fields";

/// Returns the schemas of a version's object and list kinds, by name.
pub fn version_schemas(crd: &CrdInfo, at: usize, dialect: OpenApiVersion) -> BTreeMap<String, Value> {
    let version = crd.versions[at].name;
    let mut described = crd.version_spec(at);
    let schema = described["schema"]["openAPIV3Schema"].take();
    let kind = |kind: &str| json!([{"group": crd.group, "version": version, "kind": kind}]);
    let mut object = object_schema(schema, dialect);
    object["x-kubernetes-group-version-kind"] = kind(crd.kind);
    let name = |kind: &str| model_name(crd.group, version, kind);
    let item = match dialect {
        OpenApiVersion::V2 => json!({"$ref": format!("#/definitions/{}", name(crd.kind))}),
        OpenApiVersion::V3 => json!({"$ref": format!("#/components/schemas/{}", name(crd.kind))}),
    };
    let (plural, list_kind) = (crd.plural, crd.list_kind);
    let mut list = json!({
        "type": "object",
        "description": format!("{list_kind} is a list of {}", crd.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": dialect.described_reference(dialect.schema_reference("ListMeta"), LIST_METADATA),
            "items": {"type": "array", "items": item, "description": format!("List of {plural}. More info: \
                https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md")},
        },
        "x-kubernetes-group-version-kind": kind(list_kind),
    });
    if let Value::Array(fields) = described["selectableFields"].take() {
        let path =
            |field: &Value| json!({"fieldPath": api::meta::string_at(field, &["jsonPath"]).trim_start_matches('.')});
        let paths: Value = fields.iter().map(path).collect();
        object[SELECTABLE] = paths.clone();
        list[SELECTABLE] = paths;
    }
    BTreeMap::from([(name(crd.kind), object), (name(list_kind), list)])
}

/// Returns the schema of the object kind, with `apiVersion`, `kind` and `metadata`.
fn object_schema(schema: Value, dialect: OpenApiVersion) -> Value {
    let unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !schema.is_object() || dialect == OpenApiVersion::V2 && unknown {
        return json!({"type": "object"});
    }
    let mut schema = convert_schema(schema, dialect);
    add_object_meta(&mut schema, dialect);
    schema
}

fn add_object_meta(schema: &mut Value, dialect: OpenApiVersion) {
    let properties = schema.as_object_mut().map(|schema| schema.entry("properties").or_insert_with(|| json!({})));
    let Some(Value::Object(properties)) = properties else { return };
    properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION}));
    properties.insert("kind".into(), json!({"type": "string", "description": KIND}));
    properties.insert("metadata".into(), dialect.described_reference(dialect.schema_reference("ObjectMeta"), METADATA));
}

/// Converts a schema node to an OpenAPI version.
fn convert_schema(schema: Value, dialect: OpenApiVersion) -> Value {
    let Value::Object(mut map) = schema else { return schema };
    if dialect == OpenApiVersion::V2 {
        simplify_for_v2(&mut map);
    } else if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && !map.contains_key("anyOf") {
        map.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name) {
            *inner = convert_schema(inner.take(), dialect);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(|inner| *inner = convert_schema(inner.take(), dialect));
    }
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    let mut out = Value::Object(map);
    if embedded && !(dialect == OpenApiVersion::V2 && out["type"].is_null()) {
        add_object_meta(&mut out, dialect);
    }
    out
}

/// Removes constructs that OpenAPI v2 clients do not support.
fn simplify_for_v2(map: &mut Map) {
    for name in ["allOf", "oneOf", "anyOf", "not", "default"] {
        map.remove(name);
    }
    let flag = |map: &Map, name: &str| map.get(name) == Some(&Value::Bool(true));
    let nullable: Vec<String> = {
        let properties = map.get("properties").and_then(Value::as_object).into_iter().flatten();
        properties.filter(|(_, inner)| inner["nullable"] == true).map(|(name, _)| name.clone()).collect()
    };
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|name| !nullable.iter().any(|nullable| name == nullable));
    }
    if map.get("required").is_some_and(|required| required.as_array().is_some_and(Vec::is_empty)) {
        map.remove("required");
    }
    let unknown = flag(map, "x-kubernetes-preserve-unknown-fields");
    if flag(map, "nullable") {
        map.remove("type");
    }
    if flag(map, "nullable") || unknown {
        map.remove("items");
        map.remove("properties");
    }
    map.remove("nullable");
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    let untyped = kind == "array" && !map.contains_key("items") || kind == "object" && unknown;
    if untyped {
        map.remove("type");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_schema_drops_unsupported_constructs() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "nullable": true}, "b": {"type": "string", "default": "b"},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"d": {}}},
            "e": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}});
        let want = json!({"type": "object", "required": ["b"], "properties": {
            "a": {}, "b": {"type": "string"}, "c": {"x-kubernetes-preserve-unknown-fields": true},
            "e": {"x-kubernetes-int-or-string": true}}});
        assert_eq!(convert_schema(schema.clone(), OpenApiVersion::V2), want);
        assert_eq!(convert_schema(schema.clone(), OpenApiVersion::V3), schema);
    }
}
