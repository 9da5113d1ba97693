//! Request metrics: from the start of a request until the end of its response or stream.

use std::{sync::atomic::Ordering, time::Instant};

use api::schema::schema;
use apiserver_core::{Body, request::ResourceRequest};
use http::{Method, Response};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::Server;

/// The metric labels of a request. All values are static, so that clients cannot create new series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    dry_run: bool,
}

impl RequestKey {
    /// The key of a resource request.
    pub fn for_resource(target: &ResourceRequest) -> Self {
        let resource = &target.resource;
        let subresource = target.subresource.split('/').next().unwrap_or_default();
        let scope = match (target.name.is_empty(), target.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) if target.verb == "create" => "resource",
            (true, true) => "cluster",
        };
        Self {
            verb: metric_verb(target),
            group: resource.group,
            version: resource.version,
            resource: resource.name,
            subresource: resource.subresource(subresource).map_or("", |sub| sub.name),
            scope: if target.verb == "create" { "resource" } else { scope },
            dry_run: target.query.get("dryRun").is_some(),
        }
    }

    /// The key of a non-resource request.
    pub fn for_path(method: &Method, path: &str) -> Self {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        const ROOTS: [&str; 12] = [
            "/healthz", "/livez", "/readyz", "/metrics", "/version", "/api", "/apis", "/openapi", "/statusz", "/flagz",
            "/logs", "/",
        ];
        let verb = match method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let root = ROOTS.into_iter().find(|root| root.trim_start_matches('/') == first);
        let nothing = "";
        Self {
            verb,
            group: nothing,
            version: nothing,
            resource: nothing,
            subresource: root.unwrap_or("other"),
            scope: nothing,
            dry_run: false,
        }
    }

    /// The labels of a deprecated API with its removal release; `None` if it is not deprecated.
    pub fn deprecated_labels(&self) -> Option<String> {
        let Self { group, version, resource, subresource, .. } = self;
        let removed = schema().resource(group, version, resource)?.removed_in()?;
        Some(format!(
            "group={group:?},removed_release={removed:?},resource={resource:?},subresource={subresource:?},version={version:?}"
        ))
    }

    /// The Prometheus labels.
    pub fn to_labels(self, code: Option<u16>, dry_run: bool) -> String {
        let mut labels = String::new();
        if let Some(code) = code {
            labels += &format!("code=\"{code}\",");
        }
        labels += "component=\"apiserver\",";
        if dry_run {
            labels += &format!("dry_run=\"{}\",", if self.dry_run { "All" } else { "" });
        }
        let Self { group, resource, scope, subresource, verb, version, .. } = self;
        labels
            + &format!(
                "group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",\
                 verb=\"{verb}\",version=\"{version}\""
            )
    }
}

/// The metric verb: the method, except for LIST, WATCH and CONNECT.
fn metric_verb(target: &ResourceRequest) -> &'static str {
    if is_long_running(target) && target.verb != "watch" {
        return "CONNECT";
    }
    match target.verb {
        "watch" => "WATCH",
        "list" => "LIST",
        "get" => "GET",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        _ => "DELETE",
    }
}

/// Whether the response is a stream.
pub fn is_long_running(target: &ResourceRequest) -> bool {
    target.verb == "watch" || apiserver_core::request::is_streaming(&target.subresource)
}

/// A request in flight.
pub struct InFlightRequest {
    server: Server,
    key: RequestKey,
    began: Instant,
    kind: RequestKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Read,
    Write,
    Stream,
}

impl InFlightRequest {
    /// Starts counting a resource request.
    pub fn for_resource(server: &Server, target: &ResourceRequest) -> Self {
        let kind = match target.verb {
            _ if is_long_running(target) => RequestKind::Stream,
            "get" | "list" => RequestKind::Read,
            _ => RequestKind::Write,
        };
        Self::start(server, RequestKey::for_resource(target), kind)
    }

    /// Starts counting a non-resource request.
    pub fn for_path(server: &Server, method: &Method, path: &str) -> Self {
        Self::start(server, RequestKey::for_path(method, path), RequestKind::Read)
    }

    /// Starts counting an aggregated request.
    pub fn for_aggregated(server: &Server, method: &Method, path: &str, verb: &str) -> Self {
        let kind = match verb {
            "watch" => RequestKind::Stream,
            "get" | "list" => RequestKind::Read,
            _ => RequestKind::Write,
        };
        Self::start(server, RequestKey::for_path(method, path), kind)
    }

    fn start(server: &Server, key: RequestKey, kind: RequestKind) -> Self {
        let this = Self { server: server.clone(), key, began: Instant::now(), kind };
        this.add_in_flight(1);
        this
    }

    /// The metric key.
    pub fn key(&self) -> RequestKey {
        self.key
    }

    fn add_in_flight(&self, amount: i64) {
        let metrics = &self.server.shared.metrics;
        match self.kind {
            RequestKind::Read => {
                metrics.reading.fetch_add(amount, Ordering::Relaxed);
            }
            RequestKind::Write => {
                metrics.writing.fetch_add(amount, Ordering::Relaxed);
            }
            RequestKind::Stream => metrics.long_running.add(&self.key, amount),
        }
    }

    /// Records the response. A stream counts until its body is dropped.
    pub fn record_response(self, response: Response<Body>) -> Response<Body> {
        let metrics = &self.server.shared.metrics;
        metrics.requests.add(&(self.key, response.status().as_u16()), 1);
        if self.kind == RequestKind::Stream && response.status().is_success() {
            return response.map(|body| {
                body.map_frame(move |frame| {
                    let _held = &self;
                    frame
                })
                .boxed_unsync()
            });
        }
        metrics.durations.observe(&self.key, u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX));
        if let Some(size) = response.body().size_hint().exact() {
            metrics.sizes.observe(&self.key, size);
        }
        response
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.add_in_flight(-1);
    }
}

#[cfg(test)]
mod tests {
    use apiserver_core::query::Query;

    use super::*;

    fn key(method: Method, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let target =
            apiserver_core::request::parse_resource_request(&method, path, Query::parse(query), &Default::default())
                .unwrap()
                .unwrap();
        RequestKey::for_resource(&target).to_labels(Some(200), true)
    }

    #[test]
    fn labels_match_upstream() {
        assert_eq!(
            key(Method::GET, "/apis/apps/v1/namespaces/a/deployments?limit=1"),
            "code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"apps\",resource=\"deployments\",scope=\"namespace\",\
             subresource=\"\",verb=\"LIST\",version=\"v1\""
        );
        assert!(key(Method::GET, "/api/v1/pods?watch=1").contains("scope=\"cluster\",subresource=\"\",verb=\"WATCH\""));
        assert!(key(Method::GET, "/api/v1/namespaces/a/pods/b/log").contains("subresource=\"log\""));
        assert!(key(Method::POST, "/api/v1/namespaces/a/pods?dryRun=All").contains("dry_run=\"All\""));
    }

    #[test]
    fn unknown_paths_share_one_key() {
        let one = RequestKey::for_path(&Method::GET, "/nope/1");
        assert_eq!(one, RequestKey::for_path(&Method::GET, "/else"));
        assert_ne!(one, RequestKey::for_path(&Method::GET, "/livez/ping"));
    }
}
