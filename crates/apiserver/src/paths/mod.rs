//! Non-resource paths: discovery, OpenAPI, version, health, metrics and debug pages.

mod debug;
mod discovery;
mod openapi;
mod tagged;

use api::status::Status;
use apiserver_core::{Body, negotiation};
use http::{HeaderValue, Method, Response, header, request::Parts};
use serde::Serialize;
use serde_json::json;

use crate::{Server, encode, health, metrics};

/// First segments of read-only paths.
const READ_ONLY_ROOTS: &[&str] =
    &["api", "apis", "flagz", "healthz", "livez", "metrics", "openapi", "readyz", "statusz", "version"];

/// Handles a non-resource path; 404 if it is unknown.
pub async fn handle_path(server: &Server, request: &Parts) -> Result<Response<Body>, Status> {
    let path = request.uri.path();
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        // Unknown resources below a group-version are 404.
        let resource = first == "apis" && path.trim_matches('/').split('/').count() > 3;
        let known = READ_ONLY_ROOTS.contains(&first) && !resource;
        return if known { Err(Status::method_not_allowed()) } else { Ok(encode::not_found_response()) };
    }
    if let Some(response) = health::handle_health(server, request).await {
        return Ok(response);
    }
    if let Some((document, media_type)) = server
        .shared
        .tokens
        .as_ref()
        .and_then(|tokens| tokens.discovery_document(path, &discovery::server_address(server, request)))
    {
        let mut response = encode::json_response(200, &document);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        return Ok(response);
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    Ok(match parts.as_slice() {
        [""] => encode::indented_json_response(200, &root_paths(server)),
        ["version"] => {
            check_accept(request, &["application/json"])?;
            encode::indented_json_response(200, &version_info(server))
        }
        ["metrics"] => metrics::metrics_response(server).await,
        ["metrics", "slis"] => metrics::slis_response(server).await,
        ["statusz"] => debug::statusz_response(server),
        ["flagz"] => debug::flagz_response(server),
        ["api" | "apis", ..] => discovery::handle_discovery(server, request, &parts)?,
        ["openapi", rest @ ..] => openapi::handle_openapi(server, request, rest),
        _ => encode::not_found_response(),
    })
}

/// 406 with the text of upstream's router, unless the client accepts one of `types`.
fn check_accept(request: &Parts, types: &[&str]) -> Result<(), Status> {
    if accepts_any(request, types) { Ok(()) } else { Err(negotiation::not_acceptable_status(types)) }
}

/// Whether the client accepts one of these types; without an `Accept` header it accepts all.
fn accepts_any(request: &Parts, types: &[&str]) -> bool {
    let media = |choice: &str| choice.split(';').next().unwrap_or_default().trim().to_owned();
    accepted_types(request)
        .map(media)
        .any(|media| media.is_empty() || media == "*/*" || types.contains(&media.as_str()))
}

/// The media types of the `Accept` header, in order.
fn accepted_types(request: &Parts) -> impl Iterator<Item = &str> {
    let accept = request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').map(str::trim)
}

fn root_paths(server: &Server) -> api::Value {
    let served = &server.shared.options.served;
    let enabled = |group: &str, version: &str| served.includes(group, version);
    let groups = api::discovery::served_groups(&enabled).into_iter().map(|group| format!("/apis/{group}"));
    let versions = api::discovery::served_group_versions(&enabled).into_iter().map(|(group, version)| match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    });
    let fixed = [
        "/api",
        "/apis",
        "/apis/",
        "/flagz",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/statusz",
        "/version",
    ];
    let mut paths: Vec<String> = fixed.into_iter().map(str::to_owned).chain(groups).chain(versions).collect();
    paths.extend(health::check_paths());
    paths.extend(server.aggregator().remote_paths());
    paths.sort();
    paths.dedup();
    json!({"paths": paths})
}

/// The version of the server, with the field order of upstream's `version.Info`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionInfo {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: String,
    git_commit: String,
    git_tree_state: &'static str,
    build_date: String,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

fn version_info(server: &Server) -> VersionInfo {
    let build = &server.shared.options.build;
    VersionInfo {
        major: "1",
        minor: "36",
        emulation_major: "1",
        emulation_minor: "36",
        min_compatibility_major: "1",
        min_compatibility_minor: "35",
        git_version: format!("{}+ferry", api::KUBERNETES_VERSION),
        git_commit: build.git_commit.clone(),
        git_tree_state: "clean",
        build_date: build.date.clone(),
        go_version: "",
        compiler: "rustc",
        platform: format!("{}/{}", std::env::consts::OS, go_arch()),
    }
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
