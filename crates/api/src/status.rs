//! `Status` responses with upstream's codes, reasons and messages.

use serde_json::json;

use crate::{Map, Value, field_error::FieldError, schema::Resource};

/// An error response of the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason; empty where upstream has none.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The object that the error is about, and the causes.
    pub details: Option<Value>,
    /// The continue token of an inconsistent continuation of an expired list.
    pub continue_token: Option<String>,
}

impl Status {
    /// A status without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    fn with_object_details(self, resource: &Resource, name: &str) -> Self {
        self.with_details(status_details(name, resource.group, resource.name))
    }

    /// 404: the object does not exist.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified_name()))
            .with_object_details(resource, name)
    }

    /// 404: no resource is served at the path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    /// 409: an object of this name exists.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified_name());
        Self::new(409, "AlreadyExists", message).with_object_details(resource, name)
    }

    /// 409: a concurrent write or a failed precondition.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified_name());
        Self::new(409, "Conflict", message).with_object_details(resource, name)
    }

    /// 409: the object changed since the client read it.
    pub fn object_modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 422: fields of an object are invalid.
    pub fn invalid_object(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        // The group is that of the storage: events of both groups report the core group.
        Self::invalid_kind(resource.storage_resource().0, resource.kind, name, errors)
    }

    /// 422: fields of a kind that has no resource are invalid.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        // Equal messages are joined once; the causes keep all of them.
        errors.iter().map(ToString::to_string).for_each(|text| {
            if !texts.contains(&text) {
                texts.push(text)
            }
        });
        let list = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let qualified = qualified_kind(group, kind);
        let mut details = status_details(name, group, kind);
        let cause = |e: &FieldError| json!({"reason": e.kind.reason(), "message": e.error_body(), "field": e.field});
        details["causes"] = errors.iter().map(cause).collect();
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {list}")).with_details(details)
    }

    /// 409: the precondition of a delete does not match the stored object.
    pub fn precondition_failed(resource: &Resource, name: &str, why: &str) -> Self {
        let group = resource.storage_resource().0;
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified_kind(group, resource.kind));
        Self::new(409, "Conflict", message).with_details(status_details(name, group, resource.kind))
    }

    /// Wraps the error of another component in the reason that belongs to its code.
    pub fn from_code(code: u16, message: impl Into<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            500 => "InternalError",
            501 => "NotImplemented",
            503 => "ServiceUnavailable",
            _ => "",
        };
        Self::new(code, reason, message)
    }

    /// Returns the API's reason of this name, or "".
    pub fn known_reason(name: &str) -> &'static str {
        const REASONS: &str = "Unauthorized Forbidden NotFound AlreadyExists Conflict Gone Invalid ServerTimeout StoreReadError \
            Timeout TooManyRequests BadRequest MethodNotAllowed NotAcceptable RequestEntityTooLarge \
            UnsupportedMediaType InternalError Expired ServiceUnavailable";
        REASONS.split(' ').find(|known| *known == name).unwrap_or_default()
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the request has no valid credentials.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the request is not allowed.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let about = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{about} is forbidden: {why}", resource.qualified_name());
        Self::new(403, "Forbidden", message).with_object_details(resource, name)
    }

    /// 405: the resource does not support the method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// 406: the client accepts none of the supported media types.
    pub fn not_acceptable(supported: &str) -> Self {
        let message = format!("only the following media types are accepted: {supported}");
        Self::new(406, "NotAcceptable", message)
    }

    /// 415: the media type of the body is not supported.
    pub fn unsupported_media_type(supported: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {supported}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 410: the resource version or continue token has expired.
    pub fn resource_expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body exceeds the limit.
    pub fn request_too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 422: a JSON patch does not apply.
    pub fn unprocessable_patch(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message).with_details(json!({}))
    }

    /// 429: the client must retry after one second.
    pub fn too_many_requests() -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": 1}))
    }

    /// 500: an internal error.
    pub fn internal_error(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with_details(json!({"causes": [{"message": message.to_string()}]}))
    }

    /// 501: a feature of Kubernetes that this server lacks.
    pub fn not_implemented(what: impl std::fmt::Display) -> Self {
        Self::new(501, "NotImplemented", format!("{what} is not supported by this server"))
    }

    /// 503: the service is temporarily unavailable.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504: the requested resource version is newer than the current one.
    pub fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, "Timeout", message).with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// Encodes the `Status` object.
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            value["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            value["details"] = details.clone();
        }
        if let Some(next) = &self.continue_token {
            value["metadata"]["continue"] = next.as_str().into();
        }
        value
    }
}

macro_rules! status_checks {
    ($($name:ident($code:literal, $reason:pat);)*) => {
        impl Status {
            $(#[doc = concat!("Whether it is a ", $code, " with the reason `", stringify!($reason), "`.")]
            pub fn $name(&self) -> bool {
                matches!((self.code, self.reason), ($code, $reason))
            })*
        }
    };
}
status_checks! {
    is_bad_request(400, _);
    is_not_found(404, _);
    is_already_exists(409, "AlreadyExists");
    is_conflict(409, "Conflict");
    is_expired(410, "Expired" | "Gone");
    is_too_many_requests(429, _);
    is_timeout(504, _);
}

/// Formats a kind with its group: `Pod` or `Deployment.apps`.
fn qualified_kind(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn status_details(name: &str, group: &str, kind: &str) -> Value {
    let given = [("kind", kind), ("name", name), ("group", group)].into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(field, text)| (field.to_owned(), Value::from(text))).collect::<Map>().into()
}
