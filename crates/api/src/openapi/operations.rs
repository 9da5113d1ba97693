//! Path items and operations of OpenAPI v2 and v3. In v2, parameters of several operations are shared beside the paths.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_URL_SAFE};
use serde_json::json;

use super::{
    components::{Components, Dialect},
    operation_descriptions,
    route::{Body, Parameter, Route, Shape, by_path, split_common},
};
use crate::{Map, Value};

/// The parameters that v2 keeps in operations.
const NEVER_SHARED: &[&str] = &["name", "fieldValidation", "dryRun"];

/// Writes the paths of a document.
pub(super) struct Writer<'a> {
    components: &'a Components,
    /// The shared parameters of v2.
    pub shared: BTreeMap<String, Value>,
    /// Encoded parameters; operations repeat the same few.
    written: BTreeMap<Parameter, Value>,
}

impl<'a> Writer<'a> {
    pub fn new(components: &'a Components) -> Self {
        Self { components, shared: BTreeMap::new(), written: BTreeMap::new() }
    }

    /// Writes the path items of routes.
    pub fn paths(&mut self, routes: &[Route]) -> Map {
        by_path(routes).into_iter().map(|(path, routes)| (path.to_owned(), self.item(&routes))).collect()
    }

    fn is_v2(&self) -> bool {
        self.components.dialect == Dialect::V2
    }

    fn item(&mut self, routes: &[&Route]) -> Value {
        let (common, own) = split_common(routes);
        let mut item = Map::new();
        for (route, parameters) in routes.iter().zip(own) {
            item.insert(route.method.to_owned(), self.operation(route, &parameters));
        }
        if !common.is_empty() {
            item.insert("parameters".into(), common.iter().map(|parameter| self.parameter(parameter)).collect());
        }
        Value::Object(item)
    }

    fn operation(&mut self, route: &Route, parameters: &[Parameter]) -> Value {
        let mut out = json!({"operationId": route.id, "description": operation_descriptions::operation(route), "tags": [route.tag],
            "responses": self.responses(route)});
        let mut taken = Vec::new();
        if self.is_v2() {
            out["schemes"] = json!(["https"]);
            for (name, media) in [("consumes", route.consumes), ("produces", route.produces)] {
                if !media.is_empty() {
                    out[name] = json!(media);
                }
            }
            taken.extend(route.body.as_ref().map(|body| self.body_parameter(body)));
        } else if let Some(body) = &route.body {
            out["requestBody"] =
                json!({"content": content(route.consumes, &self.components.reference(&body.component))});
            require(&mut out["requestBody"], body.required);
        }
        taken.extend(parameters.iter().map(|parameter| self.parameter(parameter)));
        if !taken.is_empty() {
            out["parameters"] = taken.into();
        }
        if let Some(action) = route.action {
            out["x-kubernetes-action"] = action.into();
        }
        if let Some(kind) = &route.kind {
            out["x-kubernetes-group-version-kind"] = kind.value();
        }
        out
    }

    fn responses(&self, route: &Route) -> Value {
        let mut out = json!({"401": {"description": "Unauthorized"}});
        for (code, shape) in &route.answers {
            let schema = match shape {
                Shape::Component(key) => self.components.reference(key),
                Shape::Text => json!({"type": "string"}),
            };
            out[code.to_string()] = if self.is_v2() {
                json!({"description": reason(*code), "schema": schema})
            } else {
                json!({"description": reason(*code), "content": content(route.produces, &schema)})
            };
        }
        out
    }

    fn body_parameter(&mut self, body: &Body) -> Value {
        let mut out = json!({"name": "body", "in": "body", "schema": self.components.reference(&body.component)});
        require(&mut out, body.required);
        let common = body.component == "Patch" || body.component.starts_with("meta/");
        if common { self.share("body", out) } else { out }
    }

    fn parameter(&mut self, parameter: &Parameter) -> Value {
        if let Some(written) = self.written.get(parameter) {
            return written.clone();
        }
        let written = self.write_parameter(parameter);
        self.written.entry(*parameter).or_insert(written).clone()
    }

    fn write_parameter(&mut self, parameter: &Parameter) -> Value {
        let mut out = json!({"name": parameter.name, "in": parameter.place});
        let form = json!({"type": parameter.ty, "uniqueItems": true});
        match (self.is_v2(), form) {
            (true, Value::Object(mut form)) => out.as_object_mut().into_iter().for_each(|out| out.append(&mut form)),
            (_, form) => out["schema"] = form,
        }
        if let Some(text) = operation_descriptions::parameter(parameter) {
            out["description"] = text.into();
        }
        require(&mut out, parameter.place == "path");
        let stays = !self.is_v2() || NEVER_SHARED.contains(&parameter.name);
        if stays { out } else { self.share(parameter.name, out) }
    }

    fn share(&mut self, name: &str, parameter: Value) -> Value {
        let key = format!("{name}-{}", short_hash(&parameter.to_string()));
        let reference = json!({"$ref": format!("#/parameters/{key}")});
        self.shared.insert(key, parameter);
        reference
    }
}

fn require(part: &mut Value, required: bool) {
    if required {
        part["required"] = true.into();
    }
}

fn content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map>().into()
}

/// The description of a status code.
fn reason(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}

/// Eight characters: the base64 start of the FNV-1 hash.
fn short_hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    BASE64_URL_SAFE.encode(&hash.to_be_bytes()[..6])
}
