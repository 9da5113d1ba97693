//! The last stage: an outcome in the form that the client asked for: JSON, a table, or metadata only.

use api::{
    Value, convert, meta, protobuf,
    status::Status,
    table::{self, Include},
};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::json;
use store::Revision;

use crate::{
    Body, clock,
    document::{self, Tail},
    pipeline::{PROTOBUF, full},
    registry::List,
    request::Target,
};

const SUPPORTED: &str = "application/json, application/vnd.kubernetes.protobuf";

/// How objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Json,
    /// As they are, in protobuf.
    Protobuf,
    /// As rows of a table.
    Table(Include),
    /// Their metadata only.
    Metadata,
}

impl Form {
    /// The first form in `Accept` that can be served.
    pub fn negotiate(headers: &HeaderMap, target: &Target) -> Result<Self, Status> {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let mut choices = accept.split(',').map(str::trim).filter(|choice| !choice.is_empty()).peekable();
        if choices.peek().is_none() {
            return Ok(Form::Json);
        }
        choices.find_map(|choice| Self::of(choice, target)).ok_or_else(|| Status::not_acceptable(SUPPORTED))
    }

    fn of(choice: &str, target: &Target) -> Option<Self> {
        let mut parts = choice.split(';').map(str::trim);
        match parts.next()? {
            // Tables and metadata are JSON: who asks for them in protobuf has another choice.
            PROTOBUF => return parts.all(|part| !part.starts_with("as=")).then_some(Form::Protobuf),
            "application/json" | "*/*" | "application/*" => {}
            _ => return None,
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let get = |name: &str| parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        let versioned = matches!((get("g"), get("v")), (Some("meta.k8s.io"), Some("v1")));
        match get("as") {
            None => Some(Form::Json),
            Some("Table") if versioned => Some(Form::Table(match target.query.get("includeObject") {
                Some("None") => Include::None,
                Some("Object") => Include::Object,
                _ => Include::Metadata,
            })),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if versioned => Some(Form::Metadata),
            Some(_) => None,
        }
    }
}

/// An answer of JSON.
pub fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, value.to_string())
}

/// An answer of bytes that are JSON.
pub fn bytes(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A `Status` that says what went wrong.
pub fn error(status: &Status) -> Response<Body> {
    let mut response = json(status.code, &status.to_value());
    if let Some(seconds) = status.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64()) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// What a path gets that nothing is at.
pub fn no_page() -> Response<Body> {
    let mut response = Response::new(full("404 page not found\n"));
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
pub fn document(target: &Target, form: Form, value: &Bytes, revision: Revision) -> Result<Response<Body>, Status> {
    if form == Form::Json && Tail::of(target.resource).ends(value) {
        return Ok(bytes(200, document::answer(value, revision)));
    }
    let stored = document::decode(value, revision).map_err(Status::internal)?;
    Ok(object(target, form, convert::to(target.resource, stored), 200))
}

/// One object.
pub fn object(target: &Target, form: Form, object: Value, code: u16) -> Response<Body> {
    match form {
        Form::Protobuf => match protobuf::encode_any(&object) {
            Some(message) => protobuf_bytes(code, message),
            None => json(code, &object),
        },
        Form::Json | Form::Table(_) | Form::Metadata => json(code, &shaped(target, form, object)),
    }
}

fn protobuf_bytes(code: u16, message: Vec<u8>) -> Response<Body> {
    let mut response = bytes(code, message);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    response
}

/// One object in a form; what is no object of the resource (a `Status`, a `Scale`) stays as it is.
pub fn shaped(target: &Target, form: Form, object: Value) -> Value {
    if object["kind"] != target.resource.kind {
        return object;
    }
    match form {
        Form::Json | Form::Protobuf => object,
        Form::Metadata => table::partial_metadata(&object),
        Form::Table(include) => {
            let metadata = json!({"resourceVersion": meta::text(&object, &["metadata", "resourceVersion"])});
            table::table(target.resource, std::iter::once(&object), metadata, include, clock::now())
        }
    }
}

/// A list.
pub fn list(target: &Target, form: Form, list: List) -> Result<Response<Body>, Status> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(token) = &list.next {
        metadata["continue"] = token.as_str().into();
        if let Some(remaining) = list.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    match form {
        Form::Json => joined(target, &metadata, &list),
        Form::Protobuf => {
            Ok(protobuf_bytes(200, protobuf::encode_list(target.resource, &metadata, &objects(target, &list)?)))
        }
        Form::Table(include) => {
            let objects = objects(target, &list)?;
            Ok(json(200, &table::table(target.resource, objects.iter(), metadata, include, clock::now())))
        }
        Form::Metadata => {
            let items: Vec<Value> = objects(target, &list)?.iter().map(table::partial_metadata).collect();
            let body = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items});
            Ok(json(200, &body))
        }
    }
}

fn objects(target: &Target, list: &List) -> Result<Vec<Value>, Status> {
    let decode = |record| document::object(record).map(|object| convert::to(target.resource, object));
    list.records.iter().map(decode).collect::<Result<_, _>>().map_err(Status::internal)
}

/// Joins documents without decoding them.
fn joined(target: &Target, metadata: &Value, list: &List) -> Result<Response<Body>, Status> {
    let size: usize = list.records.iter().map(|record| record.value.len() + 64).sum();
    let mut out = BytesMut::with_capacity(size + 256);
    let tail = Tail::of(target.resource);
    let (kind, version) = (target.resource.kind, target.resource.api_version());
    out.put_slice(
        format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[")
            .as_bytes(),
    );
    for (at, record) in list.records.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        if tail.ends(&record.value) {
            tail.append_item(&mut out, &record.value, record.revision);
        } else {
            let object = document::object(record).map_err(Status::internal)?;
            let mut item = convert::to(target.resource, object);
            meta::object_mut(&mut item).retain(|name, _| name != "kind" && name != "apiVersion");
            out.put_slice(item.to_string().as_bytes());
        }
    }
    out.put_slice(b"]}");
    Ok(bytes(200, out.freeze()))
}
