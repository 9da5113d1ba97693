//! Request info of a path, whether or not the resource exists: unauthorized clients do not learn which resources exist.

use http::Method;

use crate::query::{self, Query};

/// The parts of a resource path; absent parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Verb; empty for methods without one.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace; empty for cluster-scoped requests.
    pub namespace: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource; empty for the object itself.
    pub subresource: String,
    /// Object name; empty for collections.
    pub name: String,
}

/// Parses a path as upstream's `RequestInfoFactory`; `None` for non-resource paths.
pub fn parse_request_info(method: &Method, path: &str, query: &Query) -> Option<RequestInfo> {
    let path = query::decode_percent(path);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, version, rest),
        _ => return None,
    };
    let (verb, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => ("watch", rest),
        ["proxy", rest @ ..] if !rest.is_empty() => ("proxy", rest),
        rest => (method_verb(method), rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize", ..] => (*namespace, rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let segment = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    let subresource = if verb == "proxy" { String::new() } else { segment(2) };
    let mut info = RequestInfo {
        verb,
        group: group.to_owned(),
        version: (*version).to_owned(),
        namespace: namespace.to_owned(),
        resource: segment(0),
        subresource,
        name: segment(1),
    };
    if info.name.is_empty() {
        info.verb = match info.verb {
            "get" if query.is_set("watch") => "watch",
            "get" => "list",
            "delete" => "deletecollection",
            verb => verb,
        };
    }
    Some(info)
}

fn method_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_path(method: &str, path: &str, want: Option<[&str; 7]>) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let got = parse_request_info(&Method::from_bytes(method.as_bytes()).unwrap(), path, &Query::parse(query));
        let got = got.as_ref().map(|got| {
            [got.verb, &*got.group, &*got.version, &*got.namespace, &*got.resource, &*got.subresource, &*got.name]
        });
        assert_eq!(got, want, "{path}");
    }

    #[test]
    fn unknown_resources_have_request_info() {
        check_path("GET", "/healthz", None);
        check_path("GET", "/api/v1", None);
        check_path("GET", "/apis/apps/v1", None);
        check_path("GET", "/api/v1/nopes", Some(["list", "", "v1", "", "nopes", "", ""]));
        check_path("GET", "/apis/nope.io/v1/things/x", Some(["get", "nope.io", "v1", "", "things", "", "x"]));
        check_path("GET", "/api/v1/namespaces/a/nopes?watch=1", Some(["watch", "", "v1", "a", "nopes", "", ""]));
        check_path("GET", "/api/v1/namespaces/a", Some(["get", "", "v1", "a", "namespaces", "", "a"]));
        check_path(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            Some(["update", "", "v1", "a", "namespaces", "finalize", "a"]),
        );
        check_path("DELETE", "/api/v1/namespaces/a/pods/", Some(["deletecollection", "", "v1", "a", "pods", "", ""]));
        check_path("POST", "/api/v1/namespaces/a/pods/b/nope/c", Some(["create", "", "v1", "a", "pods", "nope", "b"]));
        check_path("TRACE", "/api/v1/pods", Some(["", "", "v1", "", "pods", "", ""]));
        check_path("GET", "/api/v1/proxy/nodes/n/x", Some(["proxy", "", "v1", "", "nodes", "", "n"]));
    }
}
