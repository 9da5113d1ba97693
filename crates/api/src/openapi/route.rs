//! One operation on one path, independent of the OpenAPI version.

use super::group_version_kinds::GroupVersionKind;
use crate::schema::{FieldType, schema};

/// An operation of the server.
#[derive(Debug)]
pub(super) struct OpenApiRoute {
    pub path: String,
    pub method: &'static str,
    /// The operation ID, unique in all documents.
    pub id: String,
    pub tag: String,
    pub action: Option<&'static str>,
    pub kind: Option<GroupVersionKind>,
    pub parameters: Vec<RouteParameter>,
    pub body: Option<RequestBody>,
    pub consumes: &'static [&'static str],
    pub produces: &'static [&'static str],
    /// The responses besides 401.
    pub responses: Vec<(u16, ResponseBody)>,
}

/// A path or query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RouteParameter {
    pub name: &'static str,
    pub location: &'static str,
    pub ty: &'static str,
}

/// A request body.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// The component key, see [`super::components`].
    pub component: String,
    pub required: bool,
}

/// A response body.
#[derive(Clone, Debug)]
pub(super) enum ResponseBody {
    Component(String),
    Text,
}

pub(super) const ANY_MEDIA: &[&str] = &["*/*"];
pub(super) const JSON_MEDIA: &[&str] = &["application/json"];
pub(super) const DISCOVERY_MEDIA: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
pub(super) const OBJECT_MEDIA: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
pub(super) const LIST_MEDIA: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/cbor-seq",
];
pub(super) const LOG_MEDIA: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
pub(super) const PATCH_MEDIA: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];

impl OpenApiRoute {
    /// The component keys that the route refers to.
    pub fn component_keys(&self) -> Vec<String> {
        let body = self.body.iter().map(|body| body.component.clone());
        let answers = self.responses.iter().filter_map(|(_, shape)| match shape {
            ResponseBody::Component(key) => Some(key.clone()),
            ResponseBody::Text => None,
        });
        body.chain(answers).collect()
    }
}

impl RouteParameter {
    pub fn in_path(name: &'static str) -> Self {
        Self { name, location: "path", ty: "string" }
    }

    pub fn in_query(name: &'static str, ty: &'static str) -> Self {
        Self { name, location: "query", ty }
    }

    pub fn pretty() -> Self {
        Self::in_query("pretty", "string")
    }

    /// The fields of an options struct that fit a query: all but structs and times.
    pub fn query_options(struct_name: &str) -> Vec<Self> {
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
pub(super) fn split_common_parameters(routes: &[&OpenApiRoute]) -> (Vec<RouteParameter>, Vec<Vec<RouteParameter>>) {
    let everywhere = |parameter: &&RouteParameter| routes.iter().all(|route| route.parameters.contains(parameter));
    let mut common: Vec<RouteParameter> =
        routes.first().map(|route| route.parameters.iter().filter(everywhere).copied().collect()).unwrap_or_default();
    common.sort();
    let rest = |route: &&OpenApiRoute| {
        let mut own: Vec<RouteParameter> = route.parameters.iter().filter(|p| !common.contains(p)).copied().collect();
        own.sort();
        own
    };
    let own = routes.iter().map(rest).collect();
    (common, own)
}

/// Groups routes by path, sorted.
pub(super) fn routes_by_path(routes: &[OpenApiRoute]) -> std::collections::BTreeMap<&str, Vec<&OpenApiRoute>> {
    let mut paths = std::collections::BTreeMap::<&str, Vec<&OpenApiRoute>>::new();
    for route in routes {
        paths.entry(&route.path).or_default().push(route);
    }
    paths
}
