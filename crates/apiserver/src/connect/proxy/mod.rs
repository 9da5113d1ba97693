//! `proxy` of pods, services and nodes: forwards HTTP requests.

mod forward;
mod html;
mod location;
mod rewrite;

use api::status::Status;
use apiserver_core::{Body, body::full_body, request::ResourceRequest};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use rewrite::LinkRewriter;
use streaming::upgrade_proxy;

use crate::Server;

/// The default `Cache-Control` of proxied responses.
const NO_CACHE: &str = "no-cache, private";

/// Handles a proxy request.
pub async fn handle_proxy(
    server: &Server,
    target: &ResourceRequest,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let backend = location::resolve_backend(server, target).await?;
    let whole = request.uri().path().to_owned();
    let (prefix, path) = split_proxy_path(target, &whole);
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    if upgrade_proxy::is_upgrade_request(request.headers()) {
        let path = if path.is_empty() { "/" } else { &path };
        return upgrade_proxy::proxy_upgrade(&server.shared.stopping, &backend, &format!("{path}{query}"), request)
            .await;
    }
    if path.is_empty() && matches!(*request.method(), Method::GET | Method::HEAD) {
        return redirect_to_slash(&format!("{whole}/{query}"));
    }
    let links = LinkRewriter { prefix, backend: backend.host_and_port(), host: forward::request_host(&request) };
    let path = if path.is_empty() { "/".to_owned() } else { path };
    forward::forward_request(&backend, &format!("{path}{query}"), &links, request).await
}

/// Splits a path after `proxy`; the cleaned rest is empty or starts with a slash.
fn split_proxy_path(target: &ResourceRequest, path: &str) -> (String, String) {
    // /api/v1/namespaces/<ns>/pods/<name>/proxy, /api/v1/nodes/<name>/proxy
    let before = if target.resource.is_namespaced() { 8 } else { 6 };
    let parts: Vec<&str> = path.split('/').collect();
    let (start, rest) = parts.split_at(before.min(parts.len()));
    let rest = if rest.is_empty() { String::new() } else { clean_path(&format!("/{}", rest.join("/"))) };
    (start.join("/"), rest)
}

/// Removes `.`, `..` and empty segments; keeps a trailing slash.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

/// Redirects to a path with a trailing slash, which relative links require.
fn redirect_to_slash(to: &str) -> Result<Response<Body>, Status> {
    let to =
        HeaderValue::from_str(to).map_err(|_| Status::bad_request("the path is not valid in a Location header"))?;
    let mut response = Response::new(full_body(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, to);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(NO_CACHE));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_path_resolves_dots() {
        for (path, want) in [("/", "/"), ("/a/b/", "/a/b/"), ("/a//b/../c", "/a/c"), ("/../..", "/"), ("/a/.", "/a")] {
            assert_eq!(clean_path(path), want, "{path}");
        }
    }
}
