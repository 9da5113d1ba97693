//! Documents of OpenAPI 3.

use serde_json::json;

use super::{
    components::Components,
    documents::Document,
    route::{Parameter, Route, Shape, by_path, split_common},
    words,
};
use crate::{Map, Value};

/// One document.
pub(super) fn document(document: &Document) -> Value {
    let components = Components::v3(document.group_version);
    let mut parts = json!({"securitySchemes": {"BearerToken":
        {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}}});
    let schemas = components.closure(document.routes.iter().flat_map(Route::components));
    if !schemas.is_empty() {
        parts["schemas"] = Value::Object(schemas);
    }
    let paths: Map = by_path(&document.routes)
        .into_iter()
        .map(|(path, routes)| (path.to_owned(), item(&components, &routes)))
        .collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::KUBERNETES_VERSION},
        "paths": paths,
        "components": parts,
    })
}

fn item(components: &Components, routes: &[&Route]) -> Value {
    let (common, own) = split_common(routes);
    let operations = routes.iter().zip(own);
    let mut item: Map = operations
        .map(|(route, parameters)| (route.method.to_owned(), operation(components, route, &parameters)))
        .collect();
    if !common.is_empty() {
        item.insert("parameters".into(), common.iter().map(parameter).collect());
    }
    Value::Object(item)
}

fn operation(components: &Components, route: &Route, parameters: &[Parameter]) -> Value {
    let mut out = json!({"operationId": route.id, "description": words::operation(route), "tags": [route.tag],
        "responses": responses(components, route)});
    if !parameters.is_empty() {
        out["parameters"] = parameters.iter().map(parameter).collect();
    }
    if let Some(body) = &route.body {
        out["requestBody"] = json!({"content": content(route.consumes, &components.reference(&body.component))});
        if body.required {
            out["requestBody"]["required"] = true.into();
        }
    }
    route.extend(&mut out);
    out
}

fn responses(components: &Components, route: &Route) -> Value {
    let mut out = json!({"401": {"description": "Unauthorized"}});
    for (code, shape) in &route.answers {
        let schema = match shape {
            Shape::Component(key) => components.reference(key),
            Shape::Text => json!({"type": "string"}),
        };
        out[code.to_string()] = json!({"description": reason(*code), "content": content(route.produces, &schema)});
    }
    out
}

fn content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map>().into()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({"name": parameter.name, "in": parameter.place,
        "schema": {"type": parameter.ty, "uniqueItems": true}});
    if let Some(text) = words::parameter(parameter) {
        out["description"] = text.into();
    }
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}

/// What a status code is called.
pub(super) fn reason(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}

impl Route {
    /// The components that the route refers to.
    pub(super) fn components(&self) -> Vec<String> {
        let body = self.body.iter().map(|body| body.component.clone());
        let answers = self.answers.iter().filter_map(|(_, shape)| match shape {
            Shape::Component(key) => Some(key.clone()),
            Shape::Text => None,
        });
        body.chain(answers).collect()
    }

    /// Adds what Kubernetes says of an operation beyond OpenAPI.
    pub(super) fn extend(&self, operation: &mut Value) {
        if let Some(action) = self.action {
            operation["x-kubernetes-action"] = action.into();
        }
        if let Some(kind) = &self.kind {
            operation["x-kubernetes-group-version-kind"] = kind.value();
        }
    }
}
