//! Everything that is not a resource: discovery, OpenAPI, version and health.

use api::{
    discovery::{self, AggregatedVersion, Enabled},
    openapi,
    status::Status,
};
use http::{HeaderValue, Method, Response, header, request::Parts};
use serde_json::json;

use crate::{Body, Server, encode, pipeline::full, query::Query};

const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const HEALTH: &[&str] = &["/healthz", "/livez", "/readyz"];

/// Answers a path, or 404.
pub async fn answer(server: &Server, request: &Parts) -> Result<Response<Body>, Status> {
    let path = request.uri.path();
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    if HEALTH
        .iter()
        .any(|health| path == *health || path.strip_prefix(*health).is_some_and(|rest| rest.starts_with('/')))
    {
        return health(server, request).await;
    }
    if let Some(keys) = server.shared.tokens.as_ref().and_then(|tokens| tokens.published(path, host(request))) {
        return Ok(keys);
    }
    let served: Enabled = &|group, version| server.shared.settings.served.includes(group, version);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if let (["api" | "apis"], Some(version)) = (parts.as_slice(), aggregated(request)) {
        return Ok(discovered(version, parts == ["api"], served));
    }
    let body = match parts.as_slice() {
        [""] => Some(root(served)),
        ["version"] => Some(version()),
        ["api"] => Some(discovery::core_versions(host(request))),
        ["apis"] => Some(discovery::group_list_where(served)),
        ["api", version] => discovery::resource_list("", version),
        ["apis", group] => discovery::group_where(group, served),
        ["apis", group, version] if served(group, version) => discovery::resource_list(group, version),
        ["openapi", "v3"] => Some(openapi::index_where(served)),
        ["openapi", "v3", rest @ ..] => openapi::document_at(&rest.join("/")),
        ["openapi", "v2"] if accepts(request, OPENAPI_PROTOBUF) => {
            return Ok(typed(openapi::v2_protobuf_where(served), OPENAPI_PROTOBUF));
        }
        ["openapi", "v2"] => Some(openapi::v2_where(served)),
        _ => return Ok(encode::no_page()),
    };
    Ok(body.map_or_else(encode::no_page, |body| encode::json(200, &body)))
}

/// The version of the aggregated form that a client asks for first.
fn aggregated(request: &Parts) -> Option<AggregatedVersion> {
    let accept = request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').find_map(|choice| {
        let mut parts: Vec<&str> = choice.split(';').map(str::trim).collect();
        parts.sort_unstable();
        match parts.as_slice() {
            ["application/json", "as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2"] => {
                Some(AggregatedVersion::V2)
            }
            ["application/json", "as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2beta1"] => {
                Some(AggregatedVersion::V2Beta1)
            }
            _ => None,
        }
    })
}

fn discovered(version: AggregatedVersion, core: bool, served: Enabled) -> Response<Body> {
    let name = match version {
        AggregatedVersion::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        AggregatedVersion::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    typed(discovery::aggregated_where(core, version, served).to_string(), name)
}

fn accepts(request: &Parts, media: &str) -> bool {
    let accept = request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|choice| choice.trim() == media)
}

fn typed(body: impl Into<bytes::Bytes>, content_type: &'static str) -> Response<Body> {
    let mut response = encode::bytes(200, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn host(request: &Parts) -> &str {
    let header = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri.authority().map(http::uri::Authority::as_str).or(header).unwrap_or_default()
}

fn root(served: Enabled) -> api::Value {
    let groups = discovery::groups_where(served).into_iter().map(|group| format!("/apis/{group}"));
    let fixed = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    let mut paths: Vec<String> = fixed.into_iter().map(str::to_owned).chain(groups).collect();
    paths.sort();
    json!({"paths": paths})
}

fn version() -> api::Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": format!("{}+ferry", api::KUBERNETES_VERSION), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
    })
}

fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `ok`, or with `?verbose` each check; 500 when one fails.
async fn health(server: &Server, request: &Parts) -> Result<Response<Body>, Status> {
    let store = server.shared.registry.store().revision().await;
    let stopping = server.shared.ending.is_cancelled() && request.uri.path().starts_with("/readyz");
    let checks = [("ping", true), ("store", store.is_ok()), ("shutdown", !stopping)];
    let well = checks.iter().all(|(_, ok)| *ok);
    let lines: String = checks
        .iter()
        .map(|(name, ok)| if *ok { format!("[+]{name} ok\n") } else { format!("[-]{name} failed: reason withheld\n") })
        .collect();
    let name = request.uri.path().trim_matches('/').split('/').next().unwrap_or_default().to_owned();
    let verbose = Query::parse(request.uri.query().unwrap_or_default()).flag("verbose");
    let text = match (well, verbose) {
        (true, false) => "ok".to_owned(),
        (true, true) => format!("{lines}{name} check passed\n"),
        (false, _) => format!("{lines}{name} check failed\n"),
    };
    let mut response = Response::new(full(text));
    if !well {
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}
