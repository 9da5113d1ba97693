//! One operation on one path, independent of the OpenAPI version.

use super::group_version_kinds::Kind;
use crate::schema::{FieldType, schema};

/// An operation of the server.
#[derive(Debug)]
pub(super) struct Route {
    pub path: String,
    pub method: &'static str,
    /// The operation ID, unique in all documents.
    pub id: String,
    pub tag: String,
    pub action: Option<&'static str>,
    pub kind: Option<Kind>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub consumes: &'static [&'static str],
    pub produces: &'static [&'static str],
    /// The responses besides 401.
    pub answers: Vec<(u16, Shape)>,
}

/// A path or query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub place: &'static str,
    pub ty: &'static str,
}

/// A request body.
#[derive(Debug)]
pub(super) struct Body {
    /// The component key, see [`super::components`].
    pub component: String,
    pub required: bool,
}

/// A response body.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Component(String),
    Text,
}

pub(super) const ANY: &[&str] = &["*/*"];
pub(super) const JSON: &[&str] = &["application/json"];
pub(super) const DISCOVERY: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
pub(super) const OBJECT: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
pub(super) const LIST: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/cbor-seq",
];
pub(super) const LOG: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
pub(super) const PATCH: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];

impl Route {
    /// The component keys that the route refers to.
    pub fn components(&self) -> Vec<String> {
        let body = self.body.iter().map(|body| body.component.clone());
        let answers = self.answers.iter().filter_map(|(_, shape)| match shape {
            Shape::Component(key) => Some(key.clone()),
            Shape::Text => None,
        });
        body.chain(answers).collect()
    }
}

impl Parameter {
    pub fn in_path(name: &'static str) -> Self {
        Self { name, place: "path", ty: "string" }
    }

    pub fn in_query(name: &'static str, ty: &'static str) -> Self {
        Self { name, place: "query", ty }
    }

    pub fn pretty() -> Self {
        Self::in_query("pretty", "string")
    }

    /// The fields of an options struct that fit a query: all but structs and times.
    pub fn options(struct_name: &str) -> Vec<Self> {
        let Some(id) = schema().type_named(struct_name) else { return Vec::new() };
        let fields = schema().get(id).fields.iter();
        fields.filter_map(|field| Some(Self::in_query(field.name, query_type(&field.ty)?))).collect()
    }
}

fn query_type(ty: &FieldType) -> Option<&'static str> {
    match ty {
        FieldType::String => Some("string"),
        FieldType::Bool => Some("boolean"),
        FieldType::Int32 | FieldType::Int64 => Some("integer"),
        FieldType::List(element) => query_type(element),
        _ => None,
    }
}

/// Splits the parameters of one path into those common to all routes and the rest of each.
pub(super) fn split_common(routes: &[&Route]) -> (Vec<Parameter>, Vec<Vec<Parameter>>) {
    let everywhere = |parameter: &&Parameter| routes.iter().all(|route| route.parameters.contains(parameter));
    let mut common: Vec<Parameter> =
        routes.first().map(|route| route.parameters.iter().filter(everywhere).copied().collect()).unwrap_or_default();
    common.sort();
    let rest = |route: &&Route| {
        let mut own: Vec<Parameter> = route.parameters.iter().filter(|p| !common.contains(p)).copied().collect();
        own.sort();
        own
    };
    let own = routes.iter().map(rest).collect();
    (common, own)
}

/// Groups routes by path, sorted.
pub(super) fn by_path(routes: &[Route]) -> std::collections::BTreeMap<&str, Vec<&Route>> {
    let mut paths = std::collections::BTreeMap::<&str, Vec<&Route>>::new();
    for route in routes {
        paths.entry(&route.path).or_default().push(route);
    }
    paths
}
