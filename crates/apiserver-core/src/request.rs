//! What a request is about, read from its method, path and query: verb, resource, namespace, name, subresource.

mod info;

use api::{
    schema::{ResourceRef, schema},
    status::Status,
};
use http::Method;
pub use info::{RequestInfo, parse_request_info};

use crate::{
    User, document::RawExtensions, query::Query, resource_config::ApiResourceConfig, storage::CustomResources,
    warnings::Warnings,
};

/// The rows that there are: those of the tables that are served, and custom ones.
#[derive(Clone, Copy)]
pub struct ResourceResolver<'a> {
    /// Which built-in group-versions are served.
    pub served: &'a ApiResourceConfig,
    /// The custom rows, if there can be any.
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
    /// The row of the resource.
    pub resource: ResourceRef,
    /// `create`, `get`, `list`, `watch`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Empty: all namespaces, or the resource has none.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// What the request's query says.
    pub query: Query,
    /// Who asks.
    pub user: User,
    /// What is to be said besides the answer.
    pub notes: Warnings,
    /// Raw fields of the object that is sent, where they are not as the server writes them.
    pub words: RawExtensions,
}

/// Reads a path of a group and version that exist; `None` for paths of other kinds.
pub fn parse_resource_request<'a>(
    method: &Method,
    path: &str,
    query: Query,
    table: impl Into<ResourceResolver<'a>>,
) -> Option<Result<ResourceRequest, Status>> {
    let table = table.into();
    let parts: Vec<String> = path.split('/').skip(1).map(crate::query::decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return None,
    };
    let mut rows = schema().resources().iter();
    if rows.any(|resource| resource.group == group && resource.version == version) {
        let find = |name: &str| schema().resource(group, version, name).map(ResourceRef::BuiltIn);
        return table.served.includes(group, version).then(|| target(method, rest, query, find));
    }
    custom_target(method, (group, version), rest, query, table.custom?)
}

/// Of a path that no built-in row is for. What no definition serves is no resource at all.
fn custom_target(
    method: &Method,
    (group, version): (&str, &str),
    rest: &[&str],
    query: Query,
    custom: &dyn CustomResources,
) -> Option<Result<ResourceRequest, Status>> {
    let named = match rest {
        ["watch", rest @ ..] => rest,
        rest => rest,
    };
    let (namespaced, named) = match named {
        ["namespaces", _, named @ ..] => (true, named),
        named => (false, named),
    };
    let row = custom.find(group, version, named.first()?)?;
    // Only reads go over all namespaces.
    let whole = matches!(method.as_str(), "GET" | "HEAD") && named.get(1).is_none_or(|name| name.is_empty());
    if row.is_namespaced() != namespaced && !(row.is_namespaced() && whole) {
        return None;
    }
    let parsed = target(method, rest, query, |_| Some(row.clone()));
    match (parsed, named) {
        // A path below an object that its definition does not have.
        (Err(status), [_, name, _, ..]) if status.code == 404 => Some(Err(Status::not_found(&row, name))),
        (Err(status), _) if status.code == 404 => None,
        (parsed, _) => Some(parsed),
    }
}

fn target(
    method: &Method,
    rest: &[&str],
    query: Query,
    find: impl Fn(&str) -> Option<ResourceRef>,
) -> Result<ResourceRequest, Status> {
    // The old way to ask for a watch: `watch/` in front of the resource, and perhaps the name of one object.
    let (watched, rest) = match rest {
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
    let verb = match verb(method, name, &query) {
        Some("get" | "list" | "watch") if watched && subresource.is_empty() => "watch",
        Some(_) if watched => return Err(Status::no_such_path()),
        verb => verb.ok_or_else(Status::method_not_allowed)?,
    };
    let target = ResourceRequest {
        resource,
        verb,
        namespace: namespace.into(),
        name: name.into(),
        subresource,
        query,
        user: User::default(),
        notes: Warnings::default(),
        words: RawExtensions::default(),
    };
    target.allowed()?;
    // Upstream has no route for it but that to pods, services and nodes.
    if method == Method::HEAD && target.subresource.split('/').next() != Some("proxy") {
        return Err(Status::method_not_allowed());
    }
    Ok(target)
}

/// `namespaces/x` and its own subresources are about the namespace, not about something in it.
fn is_namespace_itself(rest: &[&str]) -> bool {
    matches!(rest, [] | [""] | ["status" | "finalize"])
}

fn verb(method: &Method, name: &str, query: &Query) -> Option<&'static str> {
    Some(match (method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", true) if query.flag("watch") => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", false) => "update",
        ("PATCH", false) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        // Only what is proxied takes it.
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
    /// Whether what the path names can be read again: what can only be posted is answered and gone.
    pub fn is_kept(&self) -> bool {
        self.verbs().is_none_or(|verbs| verbs.iter().any(|verb| *verb != "create"))
    }

    /// What may be done to what the path names; `None`: there is no such subresource.
    fn verbs(&self) -> Option<&[&'static str]> {
        if self.subresource.is_empty() {
            return Some(&self.resource.verbs);
        }
        let found = self.resource.subresource(self.subresource.split('/').next().unwrap_or_default());
        found.filter(|sub| sub.name == self.subresource || sub.name == "proxy").map(|sub| &*sub.verbs)
    }

    fn allowed(&self) -> Result<(), Status> {
        if self.subresource.is_empty() && self.verb == "create" && !self.name.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let verbs = self.verbs().ok_or_else(Status::no_such_path)?;
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

    fn check(method: Method, path: &str, want: Result<(&str, &str, &str, &str, &str), u16>) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let got = parse_resource_request(&method, path, Query::parse(query), &ApiResourceConfig::default())
            .expect("a resource path");
        let got = got.as_ref().map(|t| (t.verb, t.resource.name, &*t.namespace, &*t.name, &*t.subresource));
        assert_eq!(got.map_err(|status| status.code), want, "{path}");
    }

    #[test]
    fn paths_name_their_target() {
        check(Method::GET, "/api/v1/pods?watch=1", Ok(("watch", "pods", "", "", "")));
        check(Method::GET, "/api/v1/watch/pods", Ok(("watch", "pods", "", "", "")));
        check(Method::GET, "/api/v1/watch/namespaces/a/pods/b", Ok(("watch", "pods", "a", "b", "")));
        check(Method::GET, "/api/v1/watch/namespaces/a", Ok(("watch", "namespaces", "", "a", "")));
        check(Method::GET, "/api/v1/watch/namespaces/a/pods/b/log", Err(404));
        check(Method::DELETE, "/api/v1/watch/namespaces/a/pods/b", Err(404));
        check(Method::GET, "/api/v1/watch", Err(404));
        check(Method::GET, "/api/v1/namespaces/a/pods/b/log", Ok(("get", "pods", "a", "b", "log")));
        check(Method::GET, "/api/v1/namespaces/a", Ok(("get", "namespaces", "", "a", "")));
        check(Method::PUT, "/api/v1/namespaces/a/finalize", Ok(("update", "namespaces", "", "a", "finalize")));
        check(Method::POST, "/apis/apps/v1/namespaces/a/deployments", Ok(("create", "deployments", "a", "", "")));
        check(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            Ok(("deletecollection", "deployments", "a", "", "")),
        );
        check(Method::POST, "/apis/apps/v1/namespaces/a/deployments/d", Err(405));
        check(Method::HEAD, "/apis/apps/v1/namespaces/a/deployments/d", Err(405));
        check(Method::HEAD, "/api/v1/namespaces/a/pods/b/proxy/c", Ok(("get", "pods", "a", "b", "proxy/c")));
        check(Method::GET, "/apis/apps/v1/nope", Err(404));
        check(Method::GET, "/api/v1/pods/b", Err(404));
        check(Method::DELETE, "/api/v1/namespaces", Err(405));
        check(Method::GET, "/api/v1/namespaces/a/pods/b/nope", Err(404));
        assert!(
            parse_resource_request(&Method::GET, "/healthz", Query::parse(""), &ApiResourceConfig::default()).is_none()
        );
    }
}
