//! Path items and operations of OpenAPI v2 and v3. In v2, parameters of several operations are shared beside the paths.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_URL_SAFE};
use serde_json::json;

use super::{
    components::{ComponentSchemas, OpenApiVersion},
    operation_descriptions,
    route::{OpenApiRoute, RequestBody, ResponseBody, RouteParameter, routes_by_path, split_common_parameters},
};
use crate::{Map, Value};

/// The parameters that v2 keeps in operations.
const NEVER_SHARED: &[&str] = &["name", "fieldValidation", "dryRun"];

/// Writes the paths of a document.
pub(super) struct OperationWriter<'a> {
    components: &'a ComponentSchemas,
    /// The shared parameters of v2.
    pub shared: BTreeMap<String, Value>,
    /// Encoded parameters; operations repeat the same few.
    written: BTreeMap<RouteParameter, Value>,
}

impl<'a> OperationWriter<'a> {
    pub fn new(components: &'a ComponentSchemas) -> Self {
        Self { components, shared: BTreeMap::new(), written: BTreeMap::new() }
    }

    /// Writes the path items of routes.
    pub fn write_paths(&mut self, routes: &[OpenApiRoute]) -> Map {
        routes_by_path(routes)
            .into_iter()
            .map(|(path, routes)| (path.to_owned(), self.write_path_item(&routes)))
            .collect()
    }

    fn is_v2(&self) -> bool {
        self.components.dialect == OpenApiVersion::V2
    }

    fn write_path_item(&mut self, routes: &[&OpenApiRoute]) -> Value {
        let (common, own) = split_common_parameters(routes);
        let mut item = Map::new();
        for (route, parameters) in routes.iter().zip(own) {
            item.insert(route.method.to_owned(), self.write_operation(route, &parameters));
        }
        if !common.is_empty() {
            item.insert("parameters".into(), common.iter().map(|parameter| self.cached_parameter(parameter)).collect());
        }
        Value::Object(item)
    }

    fn write_operation(&mut self, route: &OpenApiRoute, parameters: &[RouteParameter]) -> Value {
        let mut out = json!({"operationId": route.id, "description": operation_descriptions::operation_description(route), "tags": [route.tag],
            "responses": self.write_responses(route)});
        let mut taken = Vec::new();
        if self.is_v2() {
            out["schemes"] = json!(["https"]);
            for (name, media) in [("consumes", route.consumes), ("produces", route.produces)] {
                if !media.is_empty() {
                    out[name] = json!(media);
                }
            }
            taken.extend(route.body.as_ref().map(|body| self.write_body_parameter(body)));
        } else if let Some(body) = &route.body {
            out["requestBody"] = json!({"content": media_type_content(route.consumes, &self.components.schema_reference(&body.component))});
            set_required(&mut out["requestBody"], body.required);
        }
        taken.extend(parameters.iter().map(|parameter| self.cached_parameter(parameter)));
        if !taken.is_empty() {
            out["parameters"] = taken.into();
        }
        if let Some(action) = route.action {
            out["x-kubernetes-action"] = action.into();
        }
        if let Some(kind) = &route.kind {
            out["x-kubernetes-group-version-kind"] = kind.to_value();
        }
        out
    }

    fn write_responses(&self, route: &OpenApiRoute) -> Value {
        let mut out = json!({"401": {"description": "Unauthorized"}});
        for (code, shape) in &route.responses {
            let schema = match shape {
                ResponseBody::Component(key) => self.components.schema_reference(key),
                ResponseBody::Text => json!({"type": "string"}),
            };
            out[code.to_string()] = if self.is_v2() {
                json!({"description": status_text(*code), "schema": schema})
            } else {
                json!({"description": status_text(*code), "content": media_type_content(route.produces, &schema)})
            };
        }
        out
    }

    fn write_body_parameter(&mut self, body: &RequestBody) -> Value {
        let mut out =
            json!({"name": "body", "in": "body", "schema": self.components.schema_reference(&body.component)});
        set_required(&mut out, body.required);
        let common = body.component == "Patch" || body.component.starts_with("meta/");
        if common { self.share_parameter("body", out) } else { out }
    }

    fn cached_parameter(&mut self, parameter: &RouteParameter) -> Value {
        if let Some(written) = self.written.get(parameter) {
            return written.clone();
        }
        let written = self.write_parameter(parameter);
        self.written.entry(*parameter).or_insert(written).clone()
    }

    fn write_parameter(&mut self, parameter: &RouteParameter) -> Value {
        let mut out = json!({"name": parameter.name, "in": parameter.location});
        let form = json!({"type": parameter.ty, "uniqueItems": true});
        match (self.is_v2(), form) {
            (true, Value::Object(mut form)) => out.as_object_mut().into_iter().for_each(|out| out.append(&mut form)),
            (_, form) => out["schema"] = form,
        }
        if let Some(text) = operation_descriptions::parameter_description(parameter) {
            out["description"] = text.into();
        }
        set_required(&mut out, parameter.location == "path");
        let stays = !self.is_v2() || NEVER_SHARED.contains(&parameter.name);
        if stays { out } else { self.share_parameter(parameter.name, out) }
    }

    fn share_parameter(&mut self, name: &str, parameter: Value) -> Value {
        let key = format!("{name}-{}", short_hash(&parameter.to_string()));
        let reference = json!({"$ref": format!("#/parameters/{key}")});
        self.shared.insert(key, parameter);
        reference
    }
}

fn set_required(part: &mut Value, required: bool) {
    if required {
        part["required"] = true.into();
    }
}

fn media_type_content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map>().into()
}

/// The description of a status code.
fn status_text(code: u16) -> &'static str {
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
