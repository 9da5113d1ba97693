//! The list of OpenAPI documents and their routes.

use super::{
    path_names,
    resource_routes::resource_routes,
    route::{DISCOVERY_MEDIA, JSON_MEDIA, OBJECT_MEDIA, OpenApiRoute, ResponseBody, RouteParameter},
};
use crate::{
    discovery::{EnabledFilter, served_group_versions, served_groups},
    schema::schema,
};

/// One v3 document; the v2 document joins all of them.
#[derive(Debug)]
pub(super) struct OpenApiDocument {
    /// The path below `/openapi/v3/`.
    pub path: String,
    /// The group-version of its kinds.
    pub group_version: Option<(&'static str, &'static str)>,
    pub routes: Vec<OpenApiRoute>,
}

/// All documents of the enabled group-versions.
pub(super) fn list_documents(enabled: EnabledFilter) -> Vec<OpenApiDocument> {
    let mut documents = fixed_documents();
    documents.extend(served_groups(enabled).into_iter().map(group_document));
    documents
        .extend(served_group_versions(enabled).into_iter().map(|(group, version)| version_document(group, version)));
    documents
}

fn version_document(group: &'static str, version: &'static str) -> OpenApiDocument {
    let path = path_names::group_version_path(group, version);
    let id = format!("get{}APIResources", path_names::operation_infix(group, version));
    let list = ResponseBody::Component("meta/v1.APIResourceList".to_owned());
    let mut all = vec![OpenApiRoute {
        consumes: OBJECT_MEDIA,
        ..get_route(format!("/{path}/"), id, path_names::operation_tag(group, version), OBJECT_MEDIA, Some(list))
    }];
    let resources = schema().resources().iter().filter(|r| r.group == group && r.version == version);
    all.extend(resources.flat_map(resource_routes));
    OpenApiDocument { path, group_version: Some((group, version)), routes: all }
}

fn group_document(group: &'static str) -> OpenApiDocument {
    let path = format!("apis/{group}");
    let word = path_names::group_word(group);
    let id = format!("get{}APIGroup", path_names::capitalize_first(&word));
    discovery_document(path, id, word, "meta/v1.APIGroup")
}

fn discovery_document(path: String, id: String, tag: String, component: &str) -> OpenApiDocument {
    let shape = ResponseBody::Component(component.to_owned());
    let route = OpenApiRoute {
        consumes: DISCOVERY_MEDIA,
        ..get_route(format!("/{path}/"), id, tag, DISCOVERY_MEDIA, Some(shape))
    };
    OpenApiDocument { path, group_version: None, routes: vec![route] }
}

/// The documents besides groups and versions.
fn fixed_documents() -> Vec<OpenApiDocument> {
    let plain =
        |path: &str, routes: Vec<OpenApiRoute>| OpenApiDocument { path: path.to_owned(), group_version: None, routes };
    let text = |path: &str, id: &str, tag: &str, produces| {
        get_route(format!("/{path}/"), id.to_owned(), tag.to_owned(), produces, Some(ResponseBody::Text))
    };
    let (openid, jwks) = (".well-known/openid-configuration", "openid/v1/jwks");
    let version = OpenApiRoute {
        consumes: JSON_MEDIA,
        ..get_route(
            "/version/".into(),
            "getCodeVersion".into(),
            "version".into(),
            JSON_MEDIA,
            Some(ResponseBody::Component("Info".into())),
        )
    };
    vec![
        discovery_document("api".into(), "getCoreAPIVersions".into(), "core".into(), "meta/v1.APIVersions"),
        discovery_document("apis".into(), "getAPIVersions".into(), "apis".into(), "meta/v1.APIGroupList"),
        plain("version", vec![version]),
        plain("logs", log_routes()),
        plain(openid, vec![text(openid, "getServiceAccountIssuerOpenIDConfiguration", "WellKnown", JSON_MEDIA)]),
        plain(jwks, vec![text(jwks, "getServiceAccountIssuerOpenIDKeyset", "openid", &["application/jwk-set+json"])]),
    ]
}

fn log_routes() -> Vec<OpenApiRoute> {
    let list = get_route("/logs/".into(), "logFileListHandler".into(), "logs".into(), &[], None);
    let file = get_route("/logs/{logpath}".into(), "logFileHandler".into(), "logs".into(), &[], None);
    vec![list, OpenApiRoute { parameters: vec![RouteParameter::in_path("logpath")], ..file }]
}

fn get_route(
    path: String,
    id: String,
    tag: String,
    produces: &'static [&'static str],
    shape: Option<ResponseBody>,
) -> OpenApiRoute {
    OpenApiRoute {
        path,
        method: "get",
        id,
        tag,
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        consumes: &[],
        produces,
        responses: shape.into_iter().map(|shape| (200, shape)).collect(),
    }
}
