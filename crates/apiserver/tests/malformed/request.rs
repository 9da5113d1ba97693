//! Requests that HTTP can carry: methods, paths, queries and headers that nobody means.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use serde_json::json;

use crate::{body, wire::Client};

/// One request.
pub struct Ask {
    /// The method, which may be none.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// Names and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Bytes,
}

impl Ask {
    /// As an HTTP/2 client sends it, if one can.
    pub fn http(&self) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).ok()?;
        *request.uri_mut() = format!("https://localhost{}", self.path).parse().ok()?;
        if !self.path.starts_with('/') || self.method == "CONNECT" {
            return None;
        }
        for (name, value) in &self.headers {
            // Those that are about one connection only are not part of HTTP/2.
            if ["connection", "upgrade", "transfer-encoding"].contains(&name.to_lowercase().as_str()) {
                return None;
            }
            request.headers_mut().append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
        Some(request)
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.300}", self.method, self.path)?;
        for (name, value) in &self.headers {
            write!(f, " {name:.40}: {:.100}", value[..value.len().min(100)].escape_ascii())?;
        }
        write!(f, " ({} bytes) {}", self.body.len(), self.body[..self.body.len().min(300)].escape_ascii())
    }
}

/// Creates what some of the requests are about.
pub async fn prepare(client: &Client) {
    let map = json!({"metadata": {"name": "m", "labels": {"a": "b"}}, "data": {"k": "v"}});
    let (status, answer) = client.post("/api/v1/namespaces/default/configmaps", &map).await;
    assert_eq!(status, 201, "{answer}");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.io/f"]}});
    client.post("/api/v1/namespaces/default/configmaps", &held).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client.post("/api/v1/namespaces/default/pods", &pod).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"metadata": {"name": "d"}, "spec": spec});
    client.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
}

fn pick<'a>(random: &mut fastrand::Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

/// A request in which something is wrong.
pub fn ask(random: &mut fastrand::Rng) -> Ask {
    match random.u8(..10) {
        0..5 => bodies(random),
        5..7 => paths(random),
        7..9 => queries(random),
        _ => headers(random),
    }
}

fn bodies(random: &mut fastrand::Rng) -> Ask {
    let (content_type, body) = body::malformed(random);
    let patch = content_type.contains("patch");
    let method = pick(random, if patch { &["PATCH"] } else { &["POST", "POST", "PUT", "PATCH", "DELETE"] });
    let item = ["configmaps/m", "pods/p", "pods/p/status", "pods/p/binding", "pods/p/eviction", "configmaps/other"];
    let collection = ["configmaps", "pods", "bindings", "events", "serviceaccounts/default/token"];
    let resource = match method {
        "POST" => pick(random, &collection),
        // What is deleted is still there for the next.
        "DELETE" => "configmaps/held",
        _ => pick(random, &item),
    };
    let group = if method != "DELETE" && random.u8(..6) == 0 { "/apis/apps/v1" } else { "/api/v1" };
    let resource = match (group, method) {
        ("/apis/apps/v1", "POST") => "deployments",
        ("/apis/apps/v1", _) => "deployments/d",
        _ => resource,
    };
    let mut path = format!("{group}/namespaces/default/{resource}?dryRun=All");
    if method == "POST" && random.u8(..4) == 0 {
        path = format!("/apis/{}", pick(random, REVIEWS));
    }
    if content_type.contains("apply") {
        path += "&fieldManager=m";
    }
    if random.u8(..4) == 0 {
        path += &format!("&fieldValidation={}", pick(random, &["Strict", "Warn", "Ignore", "Sometimes"]));
    }
    let mut headers = vec![("content-type".to_owned(), content_type.into_bytes())];
    if random.u8(..8) == 0 {
        headers.push(("content-encoding".into(), pick(random, &["gzip", "br", "identity", "gzip, gzip"]).into()));
    }
    Ask { method: method.into(), path, headers, body }
}

const REVIEWS: &[&str] = &[
    "authorization.k8s.io/v1/selfsubjectaccessreviews?",
    "authorization.k8s.io/v1/subjectaccessreviews?",
    "authorization.k8s.io/v1/selfsubjectrulesreviews?",
    "authentication.k8s.io/v1/selfsubjectreviews?",
    "authentication.k8s.io/v1/tokenreviews?",
];

fn paths(random: &mut fastrand::Rng) -> Ask {
    let parts = [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "default",
        "pods",
        "p",
        "configmaps",
        "m",
        "status",
        "scale",
        "..",
        ".",
        "",
        "%2e%2e",
        "%00",
        "%2f",
        "%ff",
        "%zz",
        "log",
        "exec",
        "proxy",
        "watch",
        "openapi",
        "v2",
        "v3",
        "metrics",
        "livez",
        "%E2%82%AC",
        "a b",
        "{}",
        "~",
        "*",
        "deployments",
        "nodes",
        "attach",
        "portforward",
        "token",
        "finalize",
        "eviction",
        "binding",
    ];
    let path: String = match random.u8(..8) {
        0 => "/".repeat(random.usize(1..50)),
        1 => format!("/api/v1/namespaces/default/configmaps/{}", "x".repeat(random.usize(1..9000))),
        2 => format!("/api/v1/namespaces/{}/configmaps", "%41".repeat(random.usize(1..3000))),
        3 => format!("/openapi/v3/{}", pick(random, &parts)),
        _ => (0..random.usize(1..9)).map(|_| format!("/{}", pick(random, &parts))).collect(),
    };
    let methods = ["GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "get"];
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{separator}dryRun=All");
    Ask { method: pick(random, &methods).into(), path, headers: Vec::new(), body: Bytes::new() }
}

fn queries(random: &mut fastrand::Rng) -> Ask {
    let names = [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "watch",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "pretty",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
        "gracePeriodSeconds",
        "propagationPolicy",
        "orphanDependents",
        "includeObject",
        "as",
        "",
        "%00",
        "shardSelector",
    ];
    let long = "x".repeat(random.usize(1..7000));
    let values = [
        "",
        "0",
        "1",
        "-1",
        "99999999999999999999",
        "1e9",
        "true",
        "false",
        "maybe",
        "a",
        "a=b",
        "a==b",
        "a!=b",
        "a%20in%20(b,c)",
        "a%20in%20(",
        "a%20notin%20()",
        "!a",
        "!!a",
        "a%3Db%2C%2Cc",
        "=",
        ",",
        "metadata.name=m",
        "spec.nope=1",
        "Exact",
        "NotOlderThan",
        "Sometimes",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0",
        "!!!",
        "%ff%fe",
        "%",
        "%zz",
        "+",
        "a+b",
        "Background",
        "Nowhere",
        "All",
        "None",
        "Table",
        "a%0Ab",
        "%E2%82%AC",
        "a%20gt%201",
        "1,2,3",
        "a.b/c/d=e",
        &long,
    ];
    let count = if random.u8(..20) == 0 { random.usize(100..1000) } else { random.usize(1..5) };
    let pairs: Vec<String> =
        (0..count).map(|_| format!("{}={}", pick(random, &names), pick(random, &values))).collect();
    let method = pick(random, &["GET", "GET", "GET", "GET", "DELETE", "POST", "PATCH"]);
    let place = match method {
        "GET" => pick(
            random,
            &["/api/v1/configmaps", "/api/v1/namespaces/default/configmaps/m", "/apis/apps/v1/deployments", "/livez"],
        ),
        "POST" => "/api/v1/namespaces/default/configmaps",
        "DELETE" => "/api/v1/namespaces/default/configmaps/held",
        _ => "/api/v1/namespaces/default/configmaps/m",
    };
    let dry = if method == "GET" { "" } else { "dryRun=All&" };
    let headers = vec![("content-type".into(), b"application/merge-patch+json".to_vec())];
    let headers = if method == "PATCH" { headers } else { Vec::new() };
    let body = if method == "GET" || method == "DELETE" { Bytes::new() } else { Bytes::from_static(b"{}") };
    Ask {
        method: method.into(),
        path: format!("{place}?{dry}{}", pairs.join("&").chars().take(30_000).collect::<String>()),
        headers,
        body,
    }
}

fn headers(random: &mut fastrand::Rng) -> Ask {
    let long = "x/y, ".repeat(random.usize(1..3000));
    let many = vec!["application/json;as=Table;g=meta.k8s.io;v=v1"; random.usize(1..200)].join(",");
    let odd = [
        ("accept", "nothing/known"),
        ("accept", "application/json;as=Table;g=nobody;v=v0"),
        ("accept", "application/json;as=;g=;v="),
        ("accept", "application/json;q=-1, */*;q=x"),
        ("accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
        ("accept", "application/cbor"),
        ("accept", ";;,,;="),
        ("accept", &long),
        ("accept", &many),
        ("accept-encoding", "gzip;q=0, *;q=0"),
        ("accept-encoding", &long),
        ("if-none-match", "\"x\", W/\"y\", *"),
        ("range", "bytes=-1--5"),
        ("authorization", "Bearer"),
        ("authorization", "Basic !!!"),
        ("content-length", "7"),
        ("expect", "100-continue"),
        ("user-agent", &long),
        ("content-type", &long),
        ("x-forwarded-for", "not, an, address"),
        ("cookie", &long),
        ("te", "trailers, gzip"),
    ];
    let mut headers = Vec::new();
    for _ in 0..random.usize(1..4) {
        let (name, value) = odd[random.usize(..odd.len())];
        headers.push((name.to_owned(), value.as_bytes().to_vec()));
    }
    if random.u8(..6) == 0 {
        headers.push(("x-noise".into(), (0..random.usize(..50)).map(|_| random.u8(128..)).collect()));
    }
    let path = pick(
        random,
        &["/api/v1/configmaps", "/api/v1/namespaces/default/configmaps/m", "/apis", "/openapi/v2", "/metrics"],
    );
    let path = format!("{path}{}", pick(random, &["", "", "?watch=1&timeoutSeconds=1"]));
    Ask { method: "GET".into(), path, headers, body: Bytes::new() }
}
