//! Whole documents: v3 per group-version, v2 for all.

use serde_json::json;

use super::{
    components::ComponentSchemas, documents::OpenApiDocument, operations::OperationWriter, route::OpenApiRoute,
};
use crate::Value;

/// Writes a v3 document.
pub(super) fn write_v3(document: &OpenApiDocument) -> Value {
    let components = ComponentSchemas::for_v3(document.group_version);
    let mut parts = json!({"securitySchemes": security_schemes()});
    let schemas = components.schemas_with_references(document.routes.iter().flat_map(OpenApiRoute::component_keys));
    if !schemas.is_empty() {
        parts["schemas"] = Value::Object(schemas);
    }
    let paths = OperationWriter::new(&components).write_paths(&document.routes);
    json!({"openapi": "3.0.0", "info": document_info(), "paths": paths, "components": parts})
}

/// Writes the v2 document.
pub(super) fn write_v2(documents: &[OpenApiDocument]) -> Value {
    let components = ComponentSchemas::for_v2();
    let definitions = components
        .schemas_with_references(documents.iter().flat_map(|it| &it.routes).flat_map(OpenApiRoute::component_keys));
    let mut writer = OperationWriter::new(&components);
    let paths: crate::Map = documents.iter().flat_map(|document| writer.write_paths(&document.routes)).collect();
    json!({"swagger": "2.0", "info": document_info(), "paths": paths, "definitions": definitions, "parameters": writer.shared,
        "securityDefinitions": security_schemes(), "security": [{"BearerToken": []}]})
}

fn document_info() -> Value {
    json!({"title": "Kubernetes", "version": crate::KUBERNETES_VERSION})
}

fn security_schemes() -> Value {
    json!({"BearerToken":
        {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}})
}
