//! Errors as the API answers them: `Status` objects with upstream's codes, reasons and messages.

use serde_json::json;

use crate::{Map, Value, schema::Resource, validate::FieldError};

/// An answer that says what went wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason; empty where upstream gives none.
    pub reason: &'static str,
    /// What a person reads.
    pub message: String,
    /// Which object, and the causes.
    pub details: Option<Value>,
    /// Where a list that broke off can be taken up again.
    pub next: Option<String>,
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, next: None }
    }

    fn with(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        self.with(details(name, resource.group, resource.name))
    }

    /// 404: no such object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified_name())).about(resource, name)
    }

    /// 404: no such path.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified_name());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// 409: somebody else was faster, or a precondition does not hold.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified_name());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409: the object changed since the client read it.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: fields are wrong.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        // The group is the one that keeps the objects: events of both groups are refused alike.
        Self::invalid_kind(resource.storage().0, resource.kind, name, errors)
    }

    /// 422: fields of something that is not an object of a resource are wrong.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            // What is said twice of two fields is read once; the causes keep both.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = qualified(group, kind);
        let mut details = details(name, group, kind);
        details["causes"] = errors
            .iter()
            .map(|e| json!({"reason": e.kind.reason(), "message": e.detail(), "field": e.field}))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {list}")).with(details)
    }

    /// 409: the object that a delete means is not the one that is there.
    pub fn other_object(resource: &Resource, name: &str, why: &str) -> Self {
        let group = resource.storage().0;
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, resource.kind));
        Self::new(409, "Conflict", message).with(details(name, group, resource.kind))
    }

    /// What another component answered, with the reason that belongs to its code.
    pub fn of_code(code: u16, message: impl Into<String>) -> Self {
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

    /// The reason of that name, where the API has one.
    pub fn of_reason(name: &str) -> &'static str {
        const REASONS: &str = "Unauthorized Forbidden NotFound AlreadyExists Conflict Gone Invalid ServerTimeout StoreReadError \
            Timeout TooManyRequests BadRequest MethodNotAllowed NotAcceptable RequestEntityTooLarge \
            UnsupportedMediaType InternalError Expired ServiceUnavailable";
        REASONS.split(' ').find(|known| *known == name).unwrap_or_default()
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: who are you?
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: you may not.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let about = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{about} is forbidden: {why}", resource.qualified_name());
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 405: the resource does not do that.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    /// 406: no answer in a form that the client accepts.
    pub fn not_acceptable(supported: &str) -> Self {
        let message = format!("only the following media types are accepted: {supported}");
        Self::new(406, "NotAcceptable", message)
    }

    /// 415: the body is in a form that is not understood.
    pub fn unsupported_media_type(supported: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {supported}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 410: the revision is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is too large.
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 422: a JSON patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message).with(json!({}))
    }

    /// 429: come back in a second.
    pub fn too_many_requests() -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self::new(429, "TooManyRequests", message).with(json!({"retryAfterSeconds": 1}))
    }

    /// 500: our fault.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with(json!({"causes": [{"message": message.to_string()}]}))
    }

    /// 501: Kubernetes has it, this server does not.
    pub fn not_implemented(what: impl std::fmt::Display) -> Self {
        Self::new(501, "NotImplemented", format!("{what} is not supported by this server"))
    }

    /// 503: come back later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504: a revision that is not there yet.
    pub fn future_revision(requested: u64, current: u64) -> Self {
        let mut status =
            Self::new(504, "Timeout", format!("Timeout: Too large resource version: {requested}, current: {current}"));
        status.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        status
    }

    /// The object that is sent.
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
        if let Some(next) = &self.next {
            value["metadata"]["continue"] = next.as_str().into();
        }
        value
    }
}

/// `Pod` or `Deployment.apps`.
fn qualified(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn details(name: &str, group: &str, kind: &str) -> Value {
    let given = [("kind", kind), ("name", name), ("group", group)].into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(field, text)| (field.to_owned(), Value::from(text))).collect::<Map>().into()
}
