//! `/openapi`: version 2 as one document, version 3 as an index of documents whose addresses change with their content, so
//! that clients may keep them for good.

use api::discovery::DocumentName;
use apiserver_core::{Body, body::full_body, query::Query};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use super::{accepted, accepts, tagged};
use crate::{Server, encode};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// What upstream calls the same in its newer spelling.
const PROTOBUF_DOT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers a path of OpenAPI, or 404.
pub fn answer(server: &Server, request: &Parts, rest: &[&str]) -> Response<Body> {
    let (name, content_type) = match rest {
        ["v2"] => match v2(request) {
            Some(found) => found,
            None => return nothing(StatusCode::NOT_ACCEPTABLE),
        },
        ["v3"] => (DocumentName::OpenApi3Index, JSON),
        ["v3", rest @ ..] => return v3(server, request, &rest.join("/")),
        _ => return encode::no_page(),
    };
    let page = server.page(&name);
    page.map_or_else(encode::no_page, |page| tagged::answer(request, &page, content_type))
}

/// The form of version 2 that a client asks for first.
fn v2(request: &Parts) -> Option<(DocumentName, &'static str)> {
    let media = |choice: &str| choice.split(';').next().unwrap_or_default().trim().to_owned();
    accepted(request).map(media).find_map(|media| match media.as_str() {
        // Go's clients cannot read the older spelling, which they ask for.
        PROTOBUF | PROTOBUF_DOT => Some((DocumentName::OpenApi2Protobuf, PROTOBUF_DOT)),
        "" | JSON | "application/*" | "*/*" => Some((DocumentName::OpenApi2, JSON)),
        _ => None,
    })
}

/// A code of which upstream says no more here.
fn nothing(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(full_body(Bytes::new()));
    *response.status_mut() = code;
    response
}

fn v3(server: &Server, request: &Parts, path: &str) -> Response<Body> {
    let Some(page) = server.page(&DocumentName::OpenApi3(path.to_owned())) else {
        return nothing(StatusCode::NOT_FOUND);
    };
    if !accepts(request, &[JSON, "application/*"]) {
        return nothing(StatusCode::NOT_ACCEPTABLE);
    }
    let query = Query::parse(request.uri.query().unwrap_or_default());
    match query.get("hash") {
        None => tagged::answer(request, &page, JSON),
        Some(hash) if hash == page.hash => for_good(tagged::answer(request, &page, JSON)),
        Some(_) => tagged::moved(&format!("/openapi/v3/{path}?hash={}", page.hash), &page),
    }
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
