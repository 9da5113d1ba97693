//! The resource request that a method, path and query describe: verb, resource, namespace, name, subresource.

mod info;

use api::{
    schema::{ResourceRef, schema},
    status::Status,
};
use http::Method;
pub use info::{RequestInfo, parse_request_info};

use crate::{
    User, custom_resources::CustomResources, document::RawExtensions, query::Query, resource_config::ApiResourceConfig,
    warnings::Warnings,
};

/// Finds resources: the built-in ones that are served, and custom resources.
#[derive(Clone, Copy)]
pub struct ResourceResolver<'a> {
    /// The served built-in group-versions.
    pub served: &'a ApiResourceConfig,
    /// Custom resources; `None` if there are none.
    pub custom: Option<&'a dyn CustomResources>,
}

impl<'a> From<&'a ApiResourceConfig> for ResourceResolver<'a> {
    fn from(served: &'a ApiResourceConfig) -> Self {
        Self { served, custom: None }
    }
}

/// A request for a resource.
#[derive(Debug)]
pub struct ResourceRequest {
    /// The requested resource.
    pub resource: ResourceRef,
    /// `create`, `get`, `list`, `watch`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Empty: all namespaces, or the resource has none.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// The decoded query.
    pub query: Query,
    /// The requesting user.
    pub user: User,
    /// Warnings for the client.
    pub warnings: Warnings,
    /// Fields of the object as the client sent them, where the server would write them differently.
    pub raw_extensions: RawExtensions,
}

/// Parses a resource path of a known group-version; `None` for other paths.
pub fn parse_resource_request<'a>(
    method: &Method,
    path: &str,
    query: Query,
    resolver: impl Into<ResourceResolver<'a>>,
) -> Option<Result<ResourceRequest, Status>> {
    let resolver = resolver.into();
    let parts: Vec<String> = path.split('/').skip(1).map(crate::query::decode_percent).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return None,
    };
    let mut resources = schema().resources().iter();
    if resources.any(|resource| resource.group == group && resource.version == version) {
        let find = |name: &str| schema().resource(group, version, name).map(ResourceRef::BuiltIn);
        return resolver.served.includes(group, version).then(|| build_request(method, rest, query, find));
    }
    parse_custom_request(method, (group, version), rest, query, resolver.custom?)
}

/// Parses the path of a custom resource; `None` if no CustomResourceDefinition serves it.
fn parse_custom_request(
    method: &Method,
    (group, version): (&str, &str),
    rest: &[&str],
    query: Query,
    custom: &dyn CustomResources,
) -> Option<Result<ResourceRequest, Status>> {
    let resource_path = match rest {
        ["watch", rest @ ..] => rest,
        rest => rest,
    };
    let (namespaced, resource_path) = match resource_path {
        ["namespaces", _, resource_path @ ..] => (true, resource_path),
        resource_path => (false, resource_path),
    };
    let resource = custom.find_resource(group, version, resource_path.first()?)?;
    // Only reads span all namespaces.
    let reads_collection =
        matches!(method.as_str(), "GET" | "HEAD") && resource_path.get(1).is_none_or(|name| name.is_empty());
    if resource.is_namespaced() != namespaced && !(resource.is_namespaced() && reads_collection) {
        return None;
    }
    let parsed = build_request(method, rest, query, |_| Some(resource.clone()));
    match (parsed, resource_path) {
        // The custom resource has no such subresource.
        (Err(status), [_, name, _, ..]) if status.is_not_found() => Some(Err(Status::not_found(&resource, name))),
        (Err(status), _) if status.is_not_found() => None,
        (parsed, _) => Some(parsed),
    }
}

fn build_request(
    method: &Method,
    rest: &[&str],
    query: Query,
    find: impl Fn(&str) -> Option<ResourceRef>,
) -> Result<ResourceRequest, Status> {
    // The deprecated watch path: `watch/` before the resource, with or without an object name.
    let (watch_path, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !is_namespace_itself(rest) => (*namespace, rest),
        rest => ("", rest),
    };
    let (name, subresource) = match rest {
        [_] | [_, ""] => ("", String::new()),
        [_, name] => (*name, String::new()),
        [_, name, subresource @ ..] => (*name, subresource.join("/")),
        [] => return Err(Status::no_such_path()),
    };
    let resource = find(rest[0]).ok_or_else(Status::no_such_path)?;
    if resource.is_namespaced() && namespace.is_empty() && !name.is_empty()
        || !resource.is_namespaced() && !namespace.is_empty()
    {
        return Err(Status::no_such_path());
    }
    let verb = match verb_for_method(method, name, &query) {
        Some("get" | "list" | "watch") if watch_path && subresource.is_empty() => "watch",
        Some(_) if watch_path => return Err(Status::no_such_path()),
        verb => verb.ok_or_else(Status::method_not_allowed)?,
    };
    let request = ResourceRequest {
        resource,
        verb,
        namespace: namespace.into(),
        name: name.into(),
        subresource,
        query,
        user: User::default(),
        warnings: Warnings::default(),
        raw_extensions: RawExtensions::default(),
    };
    request.check_verb()?;
    // Upstream routes `HEAD` only to proxied pods, services and nodes.
    if method == Method::HEAD && request.subresource.split('/').next() != Some("proxy") {
        return Err(Status::method_not_allowed());
    }
    Ok(request)
}

/// Whether `namespaces/x` and the rest of the path name the namespace itself.
fn is_namespace_itself(rest: &[&str]) -> bool {
    matches!(rest, [] | [""] | ["status" | "finalize"])
}

fn verb_for_method(method: &Method, name: &str, query: &Query) -> Option<&'static str> {
    Some(match (method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", true) if query.is_set("watch") => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", false) => "update",
        ("PATCH", false) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        // Only proxied requests use it.
        ("OPTIONS", false) => "options",
        _ => return None,
    })
}

/// Whether a subresource streams to or from a kubelet, pod or node.
pub fn is_streaming(subresource: &str) -> bool {
    let first = subresource.split('/').next().unwrap_or_default();
    matches!(first, "log" | "exec" | "attach" | "portforward" | "proxy")
}

impl ResourceRequest {
    /// Whether the path can be read; create-only paths such as reviews are not stored.
    pub fn is_readable(&self) -> bool {
        self.supported_verbs().is_none_or(|verbs| verbs.iter().any(|verb| *verb != "create"))
    }

    /// The verbs of the resource or subresource; `None` if the subresource does not exist.
    fn supported_verbs(&self) -> Option<&[&'static str]> {
        if self.subresource.is_empty() {
            return Some(&self.resource.verbs);
        }
        let found = self.resource.subresource(self.subresource.split('/').next().unwrap_or_default());
        found.filter(|sub| sub.name == self.subresource || sub.name == "proxy").map(|sub| &*sub.verbs)
    }

    fn check_verb(&self) -> Result<(), Status> {
        if self.subresource.is_empty() && self.verb == "create" && !self.name.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let verbs = self.supported_verbs().ok_or_else(Status::no_such_path)?;
        if self.subresource.is_empty()
            && self.resource.is_namespaced()
            && self.namespace.is_empty()
            && self.verb == "create"
        {
            return Err(Status::method_not_allowed());
        }
        let proxied = self.verb == "options" && self.subresource.split('/').next() == Some("proxy");
        if proxied || verbs.contains(&self.verb) { Ok(()) } else { Err(Status::method_not_allowed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_path(method: Method, path: &str, want: Result<(&str, &str, &str, &str, &str), u16>) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let got = parse_resource_request(&method, path, Query::parse(query), &ApiResourceConfig::default())
            .expect("a resource path");
        let got = got.as_ref().map(|request| {
            (request.verb, request.resource.name, &*request.namespace, &*request.name, &*request.subresource)
        });
        assert_eq!(got.map_err(|status| status.code), want, "{path}");
    }

    #[test]
    fn paths_are_parsed() {
        check_path(Method::GET, "/api/v1/pods?watch=1", Ok(("watch", "pods", "", "", "")));
        check_path(Method::GET, "/api/v1/watch/pods", Ok(("watch", "pods", "", "", "")));
        check_path(Method::GET, "/api/v1/watch/namespaces/a/pods/b", Ok(("watch", "pods", "a", "b", "")));
        check_path(Method::GET, "/api/v1/watch/namespaces/a", Ok(("watch", "namespaces", "", "a", "")));
        check_path(Method::GET, "/api/v1/watch/namespaces/a/pods/b/log", Err(404));
        check_path(Method::DELETE, "/api/v1/watch/namespaces/a/pods/b", Err(404));
        check_path(Method::GET, "/api/v1/watch", Err(404));
        check_path(Method::GET, "/api/v1/namespaces/a/pods/b/log", Ok(("get", "pods", "a", "b", "log")));
        check_path(Method::GET, "/api/v1/namespaces/a", Ok(("get", "namespaces", "", "a", "")));
        check_path(Method::PUT, "/api/v1/namespaces/a/finalize", Ok(("update", "namespaces", "", "a", "finalize")));
        check_path(Method::POST, "/apis/apps/v1/namespaces/a/deployments", Ok(("create", "deployments", "a", "", "")));
        check_path(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            Ok(("deletecollection", "deployments", "a", "", "")),
        );
        check_path(Method::POST, "/apis/apps/v1/namespaces/a/deployments/d", Err(405));
        check_path(Method::HEAD, "/apis/apps/v1/namespaces/a/deployments/d", Err(405));
        check_path(Method::HEAD, "/api/v1/namespaces/a/pods/b/proxy/c", Ok(("get", "pods", "a", "b", "proxy/c")));
        check_path(Method::GET, "/apis/apps/v1/nope", Err(404));
        check_path(Method::GET, "/api/v1/pods/b", Err(404));
        check_path(Method::DELETE, "/api/v1/namespaces", Err(405));
        check_path(Method::GET, "/api/v1/namespaces/a/pods/b/nope", Err(404));
        assert!(
            parse_resource_request(&Method::GET, "/healthz", Query::parse(""), &ApiResourceConfig::default()).is_none()
        );
    }
}
