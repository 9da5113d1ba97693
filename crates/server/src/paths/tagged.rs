//! Documents that clients keep: each has a tag, and who shows the tag is told that nothing changed.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use sha2::{Digest, Sha512};

use crate::{Body, pipeline::full};

/// The tags of documents that are too large to be kept, by their names.
#[derive(Debug, Default)]
pub struct Tags {
    known: Mutex<HashMap<&'static str, String>>,
}

impl Tags {
    /// The tag of a document, if it was made before.
    pub fn get(&self, name: &str) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Remembers the tag of a document.
    pub fn put(&self, name: &'static str, tag: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name, tag.to_owned());
    }
}

/// The tag of a document: its hash.
pub fn tag_of(body: &[u8]) -> String {
    Sha512::digest(body).iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Whether the client has the document of that tag.
pub fn has(request: &Parts, tag: &str) -> bool {
    let given = request.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given
        .split(',')
        .map(|one| one.trim().trim_start_matches("W/").trim_matches('"'))
        .any(|one| one == tag || one == "*")
}

/// 200 with a document and its tag.
pub fn document(body: impl Into<Bytes>, content_type: &'static str, tag: &str) -> Response<Body> {
    let mut response = with_tag(Response::new(full(body)), tag);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// 304.
pub fn unchanged(tag: &str) -> Response<Body> {
    let mut response = with_tag(Response::new(full(Bytes::new())), tag);
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// Sets how long the document may be kept.
pub fn cached(mut response: Response<Body>, how: &'static str) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(how));
    response
}

fn with_tag(mut response: Response<Body>, tag: &str) -> Response<Body> {
    let headers = response.headers_mut();
    // Tags are hexadecimal digits.
    if let Ok(value) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        headers.insert(header::ETAG, value);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_as_http_has_them() {
        let check = |header: &str, want: bool| {
            let request = http::Request::builder().header("If-None-Match", header).body(()).unwrap();
            assert_eq!(has(&request.into_parts().0, "AB"), want, "{header}");
        };
        check("\"AB\"", true);
        check("\"CD\", W/\"AB\"", true);
        check("*", true);
        check("\"ABC\"", false);
        check("", false);
    }
}
