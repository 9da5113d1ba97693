//! `/openapi`: version 2 as one document, version 3 as an index of documents whose addresses change with their content, so
//! that clients may keep them for good.

use api::openapi;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use super::{accepted, tagged};
use crate::{Body, Server, encode, query::Query};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// What upstream calls the same in its newer spelling.
const PROTOBUF_DOT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers a path of OpenAPI, or 404.
pub fn answer(server: &Server, request: &Parts, rest: &[&str]) -> Response<Body> {
    let served = &server.shared.settings.served;
    let enabled = |group: &str, version: &str| served.includes(group, version);
    match rest {
        ["v2"] => v2(server, request),
        ["v3"] => {
            let body = openapi::index_where(&enabled).to_string();
            let tag = tagged::tag_of(body.as_bytes());
            if tagged::has(request, &tag) {
                tagged::unchanged(&tag)
            } else {
                tagged::document(body, "application/json", &tag)
            }
        }
        ["v3", rest @ ..] => v3(server, request, &rest.join("/")),
        _ => encode::no_page(),
    }
}

fn v2(server: &Server, request: &Parts) -> Response<Body> {
    let served = &server.shared.settings.served;
    let enabled = |group: &str, version: &str| served.includes(group, version);
    let dotted = accepted(request).find(|media| [PROTOBUF, PROTOBUF_DOT, "application/json", "*/*"].contains(media));
    let (name, content_type) = match dotted {
        Some(PROTOBUF) => ("v2 protobuf", PROTOBUF),
        Some(PROTOBUF_DOT) => ("v2 protobuf", PROTOBUF_DOT),
        _ => ("v2", "application/json"),
    };
    let tags = &server.shared.tags;
    if let Some(tag) = tags.get(name).filter(|tag| tagged::has(request, tag)) {
        return tagged::unchanged(&tag);
    }
    let body = match name {
        "v2" => openapi::v2_where(&enabled).to_string().into_bytes(),
        _ => openapi::v2_protobuf_where(&enabled),
    };
    let tag = tagged::tag_of(&body);
    tags.put(name, &tag);
    if tagged::has(request, &tag) { tagged::unchanged(&tag) } else { tagged::document(body, content_type, &tag) }
}

fn v3(server: &Server, request: &Parts, path: &str) -> Response<Body> {
    let served = &server.shared.settings.served;
    let index = openapi::index_where(&|group: &str, version: &str| served.includes(group, version));
    let location = index["paths"][path]["serverRelativeURL"].as_str().unwrap_or_default();
    let Some((_, tag)) = location.split_once("hash=") else { return encode::no_page() };
    let query = Query::parse(request.uri.query().unwrap_or_default());
    let response = match query.get("hash") {
        Some(hash) if hash != tag => return moved(location, tag),
        _ if tagged::has(request, tag) => tagged::unchanged(tag),
        _ => match openapi::document_at(path) {
            Some(document) => tagged::document(document.to_string(), "application/json", tag),
            None => return encode::no_page(),
        },
    };
    if query.get("hash").is_some() { for_good(response) } else { response }
}

/// The address names the content: it never changes.
fn for_good(response: Response<Body>) -> Response<Body> {
    let mut response = tagged::cached(response, "public, immutable");
    let year = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24);
    let text = year.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::EXPIRES, value);
    }
    response
}

/// 301 to the newest content.
fn moved(location: &str, tag: &str) -> Response<Body> {
    let mut response = tagged::document(bytes::Bytes::new(), "application/json", tag);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(value) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
