//! Whole documents: v3 per group-version, v2 for all.

use serde_json::json;

use super::{components::Components, documents::Document, operations::Writer, route::Route};
use crate::Value;

/// Writes a v3 document.
pub(super) fn v3(document: &Document) -> Value {
    let components = Components::v3(document.group_version);
    let mut parts = json!({"securitySchemes": security()});
    let schemas = components.closure(document.routes.iter().flat_map(Route::components));
    if !schemas.is_empty() {
        parts["schemas"] = Value::Object(schemas);
    }
    let paths = Writer::new(&components).paths(&document.routes);
    json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": parts})
}

/// Writes the v2 document.
pub(super) fn v2(documents: &[Document]) -> Value {
    let components = Components::v2();
    let definitions = components.closure(documents.iter().flat_map(|it| &it.routes).flat_map(Route::components));
    let mut writer = Writer::new(&components);
    let paths: crate::Map = documents.iter().flat_map(|document| writer.paths(&document.routes)).collect();
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions, "parameters": writer.shared,
        "securityDefinitions": security(), "security": [{"BearerToken": []}]})
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": crate::KUBERNETES_VERSION})
}

fn security() -> Value {
    json!({"BearerToken":
        {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}})
}
