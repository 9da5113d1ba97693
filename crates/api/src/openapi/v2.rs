//! The document of OpenAPI 2, in which parameters that many operations take stand once.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_URL_SAFE};
use serde_json::json;

use super::{
    components::Components,
    documents::Document,
    route::{Parameter, Route, Shape, by_path, split_common},
    v3::reason,
    words,
};
use crate::{Map, Value};

/// Clients look for these in the operations themselves.
const NEVER_SHARED: &[&str] = &["name", "fieldValidation", "dryRun"];

/// One document of all routes.
pub(super) fn document(documents: &[Document]) -> Value {
    let components = Components::v2();
    let routes = || documents.iter().flat_map(|document| &document.routes);
    let definitions = components.closure(routes().flat_map(Route::components));
    let mut shared = Shared { components: &components, parameters: BTreeMap::new() };
    let mut paths = Map::new();
    for document in documents {
        for (path, routes) in by_path(&document.routes) {
            paths.insert(path.to_owned(), shared.item(&routes));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": crate::KUBERNETES_VERSION},
        "paths": paths,
        "definitions": definitions,
        "parameters": shared.parameters,
        "securityDefinitions": {"BearerToken":
            {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}},
        "security": [{"BearerToken": []}],
    })
}

struct Shared<'a> {
    components: &'a Components,
    parameters: BTreeMap<String, Value>,
}

impl Shared<'_> {
    fn item(&mut self, routes: &[&Route]) -> Value {
        let (common, own) = split_common(routes);
        let mut item = Map::new();
        for (route, parameters) in routes.iter().zip(own) {
            item.insert(route.method.to_owned(), self.operation(route, &parameters));
        }
        if !common.is_empty() {
            item.insert("parameters".into(), common.iter().map(|p| self.parameter(p)).collect());
        }
        Value::Object(item)
    }

    fn operation(&mut self, route: &Route, parameters: &[Parameter]) -> Value {
        let mut out = json!({"operationId": route.id, "description": words::operation(route), "tags": [route.tag],
            "schemes": ["https"], "responses": self.responses(route)});
        for (name, media) in [("consumes", route.consumes), ("produces", route.produces)] {
            if !media.is_empty() {
                out[name] = json!(media);
            }
        }
        let body = self.body(route);
        let parameters: Vec<Value> = body.into_iter().chain(parameters.iter().map(|p| self.parameter(p))).collect();
        if !parameters.is_empty() {
            out["parameters"] = parameters.into();
        }
        route.extend(&mut out);
        out
    }

    fn responses(&self, route: &Route) -> Value {
        let mut out = json!({"401": {"description": "Unauthorized"}});
        for (code, shape) in &route.answers {
            let schema = match shape {
                Shape::Component(key) => self.components.reference(key),
                Shape::Text => json!({"type": "string"}),
            };
            out[code.to_string()] = json!({"description": reason(*code), "schema": schema});
        }
        out
    }

    fn body(&mut self, route: &Route) -> Option<Value> {
        let body = route.body.as_ref()?;
        let mut out = json!({"name": "body", "in": "body", "schema": self.components.reference(&body.component)});
        if body.required {
            out["required"] = true.into();
        }
        let common = body.component == "Patch" || body.component.starts_with("meta/");
        Some(if common { self.share("body", out) } else { out })
    }

    fn parameter(&mut self, parameter: &Parameter) -> Value {
        let mut out = json!({"name": parameter.name, "in": parameter.place, "type": parameter.ty, "uniqueItems": true});
        if let Some(text) = words::parameter(parameter) {
            out["description"] = text.into();
        }
        if parameter.place == "path" {
            out["required"] = true.into();
        }
        if NEVER_SHARED.contains(&parameter.name) { out } else { self.share(parameter.name, out) }
    }

    fn share(&mut self, name: &str, parameter: Value) -> Value {
        let key = format!("{name}-{}", short_hash(&parameter.to_string()));
        let reference = json!({"$ref": format!("#/parameters/{key}")});
        self.parameters.insert(key, parameter);
        reference
    }
}

/// Eight letters: the start of FNV-1 of the text.
fn short_hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    BASE64_URL_SAFE.encode(&hash.to_be_bytes()[..6])
}
