//! HTTP bodies: the type of every request and response body, and the decoded body of an API request.

use api::{
    Map, Value, json, protobuf,
    request_body::{self, BodyFormat},
    schema::TypeId,
    status::Status,
    yaml,
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};

/// The content type of protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media types of request bodies.
const BODY_MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// Largest accepted request body.
pub const MAX_BODY: usize = 3 << 20;

/// The body of a request or a response.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// The error of a body that ended early.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off: {0}")]
pub struct BodyError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl BodyError {
    /// Wraps the error of a connection or of another body.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// The body of a request with its content type and user agent.
pub struct RequestBody {
    /// Media type without parameters, in lower case; empty when absent.
    pub content_type: String,
    /// `User-Agent` header; empty when absent.
    pub user_agent: String,
    /// The bytes, at most [`MAX_BODY`].
    pub body: Bytes,
}

impl RequestBody {
    /// Reads the body of a request, at most [`MAX_BODY`] bytes of it.
    pub async fn read_from(request: Request<Body>) -> Result<Self, Status> {
        let (content_type, user_agent) = (content_type(&request), user_agent(&request));
        Ok(Self { content_type, user_agent, body: read_body(request).await? })
    }

    /// Returns the format that the content type names.
    pub fn detect_format(&self) -> Result<BodyFormat, Status> {
        match self.content_type.as_str() {
            "" | "application/json" => Ok(BodyFormat::Json),
            "application/yaml" => Ok(BodyFormat::Yaml),
            PROTOBUF => Ok(BodyFormat::Protobuf),
            _ => Err(Status::unsupported_media_type(BODY_MEDIA_TYPES)),
        }
    }

    /// Decodes the body as an object; `kind` is the expected kind, for error messages.
    pub fn decode_object(&self, kind: &str) -> Result<Value, Status> {
        let decoded = match self.detect_format()? {
            BodyFormat::Json => json::parse(&self.body)
                .map(|(object, _)| object)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}")),
            BodyFormat::Yaml => yaml::parse(&self.body).map(|parsed| parsed.value).map_err(|error| error.to_string()),
            BodyFormat::Protobuf => protobuf::decode_object(&self.body).map_err(|error| error.to_string()),
        };
        decoded.map_err(|error| request_body::unrecognized_body(kind, &self.body, error))
    }

    /// Decodes the body as an object or a patch; `None` if it is malformed.
    pub fn decode_any(&self) -> Option<Value> {
        match self.content_type.as_str() {
            PROTOBUF => protobuf::decode_object(&self.body).ok(),
            media_type if media_type.ends_with("yaml") => yaml::parse(&self.body).ok().map(|parsed| parsed.value),
            _ => serde_json::from_slice(&self.body).ok(),
        }
    }

    /// Decodes the body as a type that every group has, such as `DeleteOptions`, whichever group it names.
    pub fn decode_options(&self, ty: TypeId, kind: &str) -> Result<Value, Status> {
        if self.body.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        if self.content_type != PROTOBUF {
            return self.decode_object(kind);
        }
        let decoded = protobuf::open_object(&self.body).and_then(|unknown| protobuf::decode_as(ty, unknown.raw));
        decoded.map_err(|error| request_body::unrecognized_body(kind, &self.body, error))
    }
}

fn content_type(request: &Request<Body>) -> String {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The `User-Agent` header; empty if absent.
pub fn user_agent(request: &Request<Body>) -> String {
    let value = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

async fn read_body(request: Request<Body>) -> Result<Bytes, Status> {
    match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Status::request_too_large(MAX_BODY)),
        Err(error) => Err(Status::bad_request(format!("cannot read the request's body: {error}"))),
    }
}

/// Returns a body of the given bytes.
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a plain-text response that must not be cached.
pub fn text_response(body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
