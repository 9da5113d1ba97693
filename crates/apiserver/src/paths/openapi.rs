//! `/openapi`: v2 as one document, v3 as an index of documents with content hashes in their URLs, so that clients may
//! cache them permanently.

use api::document_cache::DocumentName;
use apiserver_core::{Body, body::full_body, query::Query};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use super::{accepted_types, accepts_any, tagged};
use crate::{Server, encode};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The newer spelling of the same media type.
const PROTOBUF_DOT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Handles an OpenAPI path; 404 if it is unknown.
pub fn handle_openapi(server: &Server, request: &Parts, rest: &[&str]) -> Response<Body> {
    let (name, content_type) = match rest {
        ["v2"] => match negotiate_v2(request) {
            Some(found) => found,
            None => return empty_response(StatusCode::NOT_ACCEPTABLE),
        },
        ["v3"] => (DocumentName::OpenApi3Index, JSON),
        ["v3", rest @ ..] => return handle_v3(server, request, &rest.join("/")),
        _ => return encode::not_found_response(),
    };
    let page = server.api_document(&name);
    page.map_or_else(encode::not_found_response, |page| tagged::document_response(request, &page, content_type))
}

/// The first accepted encoding of OpenAPI v2.
fn negotiate_v2(request: &Parts) -> Option<(DocumentName, &'static str)> {
    let media = |choice: &str| choice.split(';').next().unwrap_or_default().trim().to_owned();
    accepted_types(request).map(media).find_map(|media| match media.as_str() {
        // Go clients request the older spelling but cannot parse it in the response.
        PROTOBUF | PROTOBUF_DOT => Some((DocumentName::OpenApi2Protobuf, PROTOBUF_DOT)),
        "" | JSON | "application/*" | "*/*" => Some((DocumentName::OpenApi2, JSON)),
        _ => None,
    })
}

/// A response without a body, as upstream sends here.
fn empty_response(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(full_body(Bytes::new()));
    *response.status_mut() = code;
    response
}

fn handle_v3(server: &Server, request: &Parts, path: &str) -> Response<Body> {
    let Some(page) = server.api_document(&DocumentName::OpenApi3(path.to_owned())) else {
        return empty_response(StatusCode::NOT_FOUND);
    };
    if !accepts_any(request, &[JSON, "application/*"]) {
        return empty_response(StatusCode::NOT_ACCEPTABLE);
    }
    let query = Query::parse(request.uri.query().unwrap_or_default());
    match query.get("hash") {
        None => tagged::document_response(request, &page, JSON),
        Some(hash) if hash == page.hash => immutable_response(tagged::document_response(request, &page, JSON)),
        Some(_) => tagged::redirect_response(&format!("/openapi/v3/{path}?hash={}", page.hash), &page),
    }
}

/// Marks a response as immutable, because its URL contains the hash.
fn immutable_response(response: Response<Body>) -> Response<Body> {
    let mut response = tagged::with_cache_control(response, "public, immutable");
    let year = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24);
    let text = year.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::EXPIRES, value);
    }
    response
}
