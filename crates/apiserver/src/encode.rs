//! Encodes responses in the negotiated media type.

use api::{Value, convert, json_encoder, meta, protobuf, schema::Resource, status::Status, table, yaml};
use apiserver_core::{
    Body,
    body::full_body,
    clock,
    document::{self, TypeMetaPrefix},
    negotiation::{MediaTypeOptions, ResponseEncoding, ResponseTransform},
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
pub fn success_response(form: MediaTypeOptions, status: &Value) -> Response<Body> {
    encoded_response(form, 200, status)
}

/// A JSON response.
pub fn json_response(code: u16, value: &Value) -> Response<Body> {
    json_bytes_response(code, encode_json_line(value))
}

/// A JSON document in upstream's key order, with a newline.
pub fn encode_json_line(value: &Value) -> Bytes {
    let mut text = json_encoder::encode_object(value);
    text.push(b'\n');
    text.into()
}

/// An indented JSON document, as upstream writes `/version` and the list of paths.
pub fn indented_json_response(code: u16, value: &impl Serialize) -> Response<Body> {
    json_bytes_response(code, indent::indent_json(serde_json::to_string(value).unwrap_or_default().as_bytes()))
}

/// A response of JSON bytes.
pub fn json_bytes_response(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The response of an error `Status`.
pub fn error_response(form: MediaTypeOptions, status: &Status) -> Response<Body> {
    let mut response = encoded_response(form, status.code, &status.to_value());
    if let Some(seconds) = status.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64()) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// 404 in plain text, for unknown paths.
pub fn not_found_response() -> Response<Body> {
    let mut response = Response::new(full_body("404 page not found\n"));
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Adds `Warning` headers.
pub fn add_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        // A warning that is not valid in a header is dropped.
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// The response of a stored document, without decoding where possible.
pub fn document_response(
    target: &ResourceRequest,
    form: MediaTypeOptions,
    value: &Bytes,
    revision: Revision,
) -> Result<Response<Body>, Status> {
    if form.is_plain()
        && target.resource.custom_schema.is_none()
        && TypeMetaPrefix::for_resource(&target.resource).matches_document(value)
    {
        return Ok(json_bytes_response(200, document::encode_response(value, revision)));
    }
    let stored = document::decode_document(value, revision).map_err(Status::internal_error)?;
    Ok(object_response(target, form, convert::convert_to(&target.resource, stored), 200))
}

/// The response of a written object, from the stored bytes where possible.
pub fn written_object_response(
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
        Some((document, revision)) => {
            compressed_response(form, code, ResponseEncoding::Json, document::encode_response(&document, revision))
        }
        None => object_response(target, form, value, code),
    }
}

/// The response of one object.
pub fn object_response(target: &ResourceRequest, form: MediaTypeOptions, object: Value, code: u16) -> Response<Body> {
    encoded_response(form, code, &transform_object(target, form, object))
}

/// Encodes a typed value; kinds without protobuf fall back to JSON.
fn encoded_response(form: MediaTypeOptions, code: u16, value: &Value) -> Response<Body> {
    let (encoding, text): (ResponseEncoding, Bytes) = match form.encoding {
        ResponseEncoding::Protobuf => match protobuf::encode_declared(value) {
            Some(message) => (ResponseEncoding::Protobuf, message.into()),
            None => (ResponseEncoding::Json, encode_json_line(value)),
        },
        ResponseEncoding::Yaml => (ResponseEncoding::Yaml, yaml::write_document(value).into()),
        ResponseEncoding::Json if form.pretty => {
            (ResponseEncoding::Json, indent::indent_json(&json_encoder::encode_object(value)).into())
        }
        ResponseEncoding::Json => (ResponseEncoding::Json, encode_json_line(value)),
    };
    compressed_response(form, code, encoding, text)
}

/// A response of bytes, compressed if accepted and large enough.
fn compressed_response(form: MediaTypeOptions, code: u16, encoding: ResponseEncoding, text: Bytes) -> Response<Body> {
    let compressed = form.gzip && text.len() >= gzip::MIN_COMPRESSED_SIZE;
    bytes_response(code, encoding, if compressed { gzip::compress_body(&text) } else { text }, compressed)
}

/// A response of bytes that may be compressed already.
fn bytes_response(code: u16, encoding: ResponseEncoding, body: Bytes, compressed: bool) -> Response<Body> {
    let mut response = json_bytes_response(code, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Transforms an object of the resource or a `Scale` into the negotiated representation; other kinds are unchanged.
pub fn transform_object(target: &ResourceRequest, form: MediaTypeOptions, object: Value) -> Value {
    if target.subresource == "scale"
        && object["kind"] == "Scale"
        && let Ok(scale) = registry::subresource_kind(target)
    {
        return transform_as(&scale, form, object);
    }
    if object["kind"] != target.resource.kind {
        return object;
    }
    transform_as(&target.resource, form, object)
}

fn transform_as(resource: &Resource, form: MediaTypeOptions, object: Value) -> Value {
    match form.transform {
        ResponseTransform::Object => object,
        ResponseTransform::Metadata => with_meta_version(form, table::partial_metadata(&object)),
        ResponseTransform::Table(include) => {
            let metadata = json!({"resourceVersion": meta::string_at(&object, &["metadata", "resourceVersion"])});
            let table = table::build_table(resource, std::iter::once(&object), metadata, include, clock::now());
            with_meta_version(form, table)
        }
    }
}

/// Sets the requested `meta.k8s.io` version of a table or partial metadata.
fn with_meta_version(form: MediaTypeOptions, mut value: Value) -> Value {
    value["apiVersion"] = format!("meta.k8s.io/{}", form.version).into();
    value
}

/// The response of a list page.
pub fn list_response(
    target: &ResourceRequest,
    form: MediaTypeOptions,
    list: ListPage,
) -> Result<Response<Body>, Status> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(token) = &list.continue_token {
        metadata["continue"] = token.as_str().into();
        if let Some(remaining) = list.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    match (form.transform, form.encoding) {
        (ResponseTransform::Object, ResponseEncoding::Protobuf) if target.resource.custom_schema.is_none() => {
            let joined = list_encoder::encode_protobuf_list(target, &metadata, &list, form.gzip)?;
            return Ok(bytes_response(200, ResponseEncoding::Protobuf, joined.body, joined.compressed));
        }
        _ if form.is_plain() && target.resource.custom_schema.is_none() => {
            let joined = list_encoder::encode_json_list(target, &metadata, &list, form.gzip)?;
            return Ok(bytes_response(200, ResponseEncoding::Json, joined.body, joined.compressed));
        }
        _ => {}
    }
    let found = match list.converted {
        Some(objects) => objects,
        None => decode_items(target, &list)?,
    };
    Ok(objects_response(target, form, found, metadata))
}

/// The response of a list of decoded objects.
pub fn objects_response(
    target: &ResourceRequest,
    form: MediaTypeOptions,
    objects: Vec<Value>,
    mut metadata: Value,
) -> Response<Body> {
    match form.transform {
        ResponseTransform::Object => {
            let (kind, version) = (target.resource.list_kind(), target.resource.api_version());
            // Items of custom resources keep their type meta, as upstream's unstructured lists do.
            let items: Vec<Value> = match target.resource.custom_schema {
                Some(_) => objects,
                None => objects.into_iter().map(list_encoder::without_type_meta).collect(),
            };
            if target.resource.custom_schema.is_some() && metadata["continue"].is_null() {
                metadata["continue"] = "".into();
            }
            let list = json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items});
            encoded_response(form, 200, &list)
        }
        ResponseTransform::Table(include) => {
            let table = table::build_table(&target.resource, objects.iter(), metadata, include, clock::now());
            encoded_response(form, 200, &with_meta_version(form, table))
        }
        ResponseTransform::Metadata => {
            let items: Vec<Value> =
                objects.iter().map(|o| with_meta_version(form, table::partial_metadata(o))).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "metadata": metadata, "items": items});
            encoded_response(form, 200, &with_meta_version(form, list))
        }
    }
}

fn decode_items(target: &ResourceRequest, list: &ListPage) -> Result<Vec<Value>, Status> {
    let decode = |record: &store::Record| {
        document::decode_record(record).map(|object| convert::convert_to(&target.resource, object))
    };
    list.items.iter().map(|item| decode(&item.record)).collect::<Result<_, _>>().map_err(Status::internal_error)
}
