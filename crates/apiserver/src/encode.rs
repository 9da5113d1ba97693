//! The last stage: an outcome in the form that the client asked for.

use api::{Value, convert, json_encoder, meta, protobuf, status::Status, table, yaml};
use apiserver_core::{
    Body,
    body::full_body,
    clock, document::{self, TypeMetaPrefix},
    negotiation::{ResponseEncoding, MediaTypeOptions, ResponseTransform},
    request::ResourceRequest,
};
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use registry::{ListPage, StoredDocument};
use serde::Serialize;
use serde_json::json;
use store::Revision;

use crate::{gzip, indent, list_encoder};

/// A `Status` of success.
pub fn success(form: MediaTypeOptions, status: &Value) -> Response<Body> {
    written(form, 200, status)
}

/// An answer of JSON.
pub fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, json_line(value))
}

/// A JSON document in upstream's key order, with a newline.
pub fn json_line(value: &Value) -> Bytes {
    let mut text = json_encoder::encode_object(value);
    text.push(b'\n');
    text.into()
}

/// An indented JSON document, as upstream writes `/version` and the list of paths.
pub fn raw_json(code: u16, value: &impl Serialize) -> Response<Body> {
    bytes(code, indent::indent_json(serde_json::to_string(value).unwrap_or_default().as_bytes()))
}

/// An answer of bytes that are JSON.
pub fn bytes(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A `Status` that says what went wrong.
pub fn error(form: MediaTypeOptions, status: &Status) -> Response<Body> {
    let mut response = written(form, status.code, &status.to_value());
    if let Some(seconds) = status.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64()) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// What a path gets that nothing is at.
pub fn no_page() -> Response<Body> {
    let mut response = Response::new(full_body("404 page not found\n"));
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Adds warnings to an answer.
pub fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        // A warning that is no header text is dropped: the answer matters more.
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// A stored document, as it is where possible.
pub fn document(
    target: &ResourceRequest,
    form: MediaTypeOptions,
    value: &Bytes,
    revision: Revision,
) -> Result<Response<Body>, Status> {
    if form.is_plain()
        && target.resource.custom_schema.is_none()
        && TypeMetaPrefix::for_resource(&target.resource).matches_document(value)
    {
        return Ok(bytes(200, document::encode_response(value, revision)));
    }
    let stored = document::decode_document(value, revision).map_err(Status::internal_error)?;
    Ok(object(target, form, convert::convert_to(&target.resource, stored), 200))
}

/// An object that was written: as it is stored, where possible.
pub fn changed(
    target: &ResourceRequest,
    form: MediaTypeOptions,
    value: Value,
    stored: Option<StoredDocument>,
    code: u16,
) -> Response<Body> {
    match stored.filter(|(document, _)| {
        form.is_plain()
            && target.resource.custom_schema.is_none()
            && TypeMetaPrefix::for_resource(&target.resource).matches_document(document)
    }) {
        Some((document, revision)) => sized(form, code, ResponseEncoding::Json, document::encode_response(&document, revision)),
        None => object(target, form, value, code),
    }
}

/// One object.
pub fn object(target: &ResourceRequest, form: MediaTypeOptions, object: Value, code: u16) -> Response<Body> {
    written(form, code, &shaped(target, form, object))
}

/// A value that says its kind, in the encoding of a form; what has no protobuf is JSON.
fn written(form: MediaTypeOptions, code: u16, value: &Value) -> Response<Body> {
    let (encoding, text): (ResponseEncoding, Bytes) = match form.encoding {
        ResponseEncoding::Protobuf => match protobuf::encode_declared(value) {
            Some(message) => (ResponseEncoding::Protobuf, message.into()),
            None => (ResponseEncoding::Json, json_line(value)),
        },
        ResponseEncoding::Yaml => (ResponseEncoding::Yaml, yaml::write(value).into()),
        ResponseEncoding::Json if form.pretty => {
            (ResponseEncoding::Json, indent::indent_json(&json_encoder::encode_object(value)).into())
        }
        ResponseEncoding::Json => (ResponseEncoding::Json, json_line(value)),
    };
    sized(form, code, encoding, text)
}

/// An answer of bytes, compressed where that is wanted and worth it.
fn sized(form: MediaTypeOptions, code: u16, encoding: ResponseEncoding, text: Bytes) -> Response<Body> {
    let compressed = form.gzip && text.len() >= gzip::WORTHWHILE;
    as_is(code, encoding, if compressed { gzip::whole(&text) } else { text }, compressed)
}

/// An answer of bytes that may be compressed already.
fn as_is(code: u16, encoding: ResponseEncoding, body: Bytes, compressed: bool) -> Response<Body> {
    let mut response = bytes(code, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// One object in a shape; what is no object of the resource (a `Status`, a `Scale`) stays as it is.
pub fn shaped(target: &ResourceRequest, form: MediaTypeOptions, object: Value) -> Value {
    if object["kind"] != target.resource.kind {
        return object;
    }
    match form.transform {
        ResponseTransform::Object => object,
        ResponseTransform::Metadata => versioned(form, table::partial_metadata(&object)),
        ResponseTransform::Table(include) => {
            let metadata = json!({"resourceVersion": meta::string_at(&object, &["metadata", "resourceVersion"])});
            let table = table::build_table(&target.resource, std::iter::once(&object), metadata, include, clock::now());
            versioned(form, table)
        }
    }
}

/// A table or metadata in the version that was asked for: they are the same but for its name.
fn versioned(form: MediaTypeOptions, mut value: Value) -> Value {
    value["apiVersion"] = format!("meta.k8s.io/{}", form.version).into();
    value
}

/// A list.
pub fn list(target: &ResourceRequest, form: MediaTypeOptions, list: ListPage) -> Result<Response<Body>, Status> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(token) = &list.continue_token {
        metadata["continue"] = token.as_str().into();
        if let Some(remaining) = list.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    match (form.transform, form.encoding) {
        (ResponseTransform::Object, ResponseEncoding::Protobuf) if target.resource.custom_schema.is_none() => {
            let joined = list_encoder::protobuf(target, &metadata, &list, form.gzip)?;
            return Ok(as_is(200, ResponseEncoding::Protobuf, joined.body, joined.compressed));
        }
        _ if form.is_plain() && target.resource.custom_schema.is_none() => {
            let joined = list_encoder::json(target, &metadata, &list, form.gzip)?;
            return Ok(as_is(200, ResponseEncoding::Json, joined.body, joined.compressed));
        }
        _ => {}
    }
    let found = match list.converted {
        Some(objects) => objects,
        None => stored(target, &list)?,
    };
    Ok(objects(target, form, found, metadata))
}

/// A list of objects that are at hand.
pub fn objects(
    target: &ResourceRequest,
    form: MediaTypeOptions,
    objects: Vec<Value>,
    mut metadata: Value,
) -> Response<Body> {
    match form.transform {
        ResponseTransform::Object => {
            let (kind, version) = (target.resource.list_kind(), target.resource.api_version());
            // Upstream knows custom resources only as what they say they are.
            let items: Vec<Value> = match target.resource.custom_schema {
                Some(_) => objects,
                None => objects.into_iter().map(list_encoder::untyped).collect(),
            };
            if target.resource.custom_schema.is_some() && metadata["continue"].is_null() {
                metadata["continue"] = "".into();
            }
            let list = json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items});
            written(form, 200, &list)
        }
        ResponseTransform::Table(include) => {
            let table = table::build_table(&target.resource, objects.iter(), metadata, include, clock::now());
            written(form, 200, &versioned(form, table))
        }
        ResponseTransform::Metadata => {
            let items: Vec<Value> = objects.iter().map(|o| versioned(form, table::partial_metadata(o))).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "metadata": metadata, "items": items});
            written(form, 200, &versioned(form, list))
        }
    }
}

fn stored(target: &ResourceRequest, list: &ListPage) -> Result<Vec<Value>, Status> {
    let decode = |record: &store::Record| {
        document::decode_record(record).map(|object| convert::convert_to(&target.resource, object))
    };
    list.items.iter().map(|item| decode(&item.record)).collect::<Result<_, _>>().map_err(Status::internal_error)
}
