//! The list of OpenAPI documents and their routes.

use super::{
    path_names,
    resource_routes::routes,
    route::{DISCOVERY, JSON, OBJECT, Parameter, Route, Shape},
};
use crate::{
    discovery::{EnabledFilter, served_group_versions, served_groups},
    schema::schema,
};

/// One v3 document; the v2 document joins all of them.
#[derive(Debug)]
pub(super) struct Document {
    /// The path below `/openapi/v3/`.
    pub path: String,
    /// The group-version of its kinds.
    pub group_version: Option<(&'static str, &'static str)>,
    pub routes: Vec<Route>,
}

/// All documents of the enabled group-versions.
pub(super) fn list(enabled: EnabledFilter) -> Vec<Document> {
    let mut documents = fixed();
    documents.extend(served_groups(enabled).into_iter().map(group));
    documents
        .extend(served_group_versions(enabled).into_iter().map(|(group, version)| version_document(group, version)));
    documents
}

fn version_document(group: &'static str, version: &'static str) -> Document {
    let path = path_names::of_version(group, version);
    let id = format!("get{}APIResources", path_names::infix(group, version));
    let list = Shape::Component("meta/v1.APIResourceList".to_owned());
    let mut all = vec![Route {
        consumes: OBJECT,
        ..get(format!("/{path}/"), id, path_names::tag(group, version), OBJECT, Some(list))
    }];
    let resources = schema().resources().iter().filter(|r| r.group == group && r.version == version);
    all.extend(resources.flat_map(routes));
    Document { path, group_version: Some((group, version)), routes: all }
}

fn group(group: &'static str) -> Document {
    let path = format!("apis/{group}");
    let word = path_names::group_word(group);
    let id = format!("get{}APIGroup", path_names::title(&word));
    discovery(path, id, word, "meta/v1.APIGroup")
}

fn discovery(path: String, id: String, tag: String, component: &str) -> Document {
    let shape = Shape::Component(component.to_owned());
    let route = Route { consumes: DISCOVERY, ..get(format!("/{path}/"), id, tag, DISCOVERY, Some(shape)) };
    Document { path, group_version: None, routes: vec![route] }
}

/// The documents besides groups and versions.
fn fixed() -> Vec<Document> {
    let plain = |path: &str, routes: Vec<Route>| Document { path: path.to_owned(), group_version: None, routes };
    let text = |path: &str, id: &str, tag: &str, produces| {
        get(format!("/{path}/"), id.to_owned(), tag.to_owned(), produces, Some(Shape::Text))
    };
    let (openid, jwks) = (".well-known/openid-configuration", "openid/v1/jwks");
    let version = Route {
        consumes: JSON,
        ..get(
            "/version/".into(),
            "getCodeVersion".into(),
            "version".into(),
            JSON,
            Some(Shape::Component("Info".into())),
        )
    };
    vec![
        discovery("api".into(), "getCoreAPIVersions".into(), "core".into(), "meta/v1.APIVersions"),
        discovery("apis".into(), "getAPIVersions".into(), "apis".into(), "meta/v1.APIGroupList"),
        plain("version", vec![version]),
        plain("logs", logs()),
        plain(openid, vec![text(openid, "getServiceAccountIssuerOpenIDConfiguration", "WellKnown", JSON)]),
        plain(jwks, vec![text(jwks, "getServiceAccountIssuerOpenIDKeyset", "openid", &["application/jwk-set+json"])]),
    ]
}

fn logs() -> Vec<Route> {
    let list = get("/logs/".into(), "logFileListHandler".into(), "logs".into(), &[], None);
    let file = get("/logs/{logpath}".into(), "logFileHandler".into(), "logs".into(), &[], None);
    vec![list, Route { parameters: vec![Parameter::in_path("logpath")], ..file }]
}

fn get(path: String, id: String, tag: String, produces: &'static [&'static str], shape: Option<Shape>) -> Route {
    Route {
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
        answers: shape.into_iter().map(|shape| (200, shape)).collect(),
    }
}
