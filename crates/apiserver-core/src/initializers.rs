//! Initializers, the former Kubernetes feature, behind a feature gate. A new object that an InitializerConfiguration
//! matches is stored with `metadata.initializers.pending`, and is hidden until that list is empty.
//!
//! This module tells which objects are pending and hides them. The admission plug-in of the same name maintains the
//! list; lists, watches and reads leave pending objects out.

use std::time::Duration;

use api::{
    Value, meta,
    schema::{GateOpenedTooLate, open_gate, schema},
    status::Status,
};

use crate::request::ResourceRequest;

/// The feature gate in the schema.
const GATE: &str = "initializers";
/// Default timeout of a create that waits for initializers.
pub const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Query parameter that includes pending objects.
const INCLUDE_UNINITIALIZED: &str = "includeUninitialized";

/// Enables initializers in this process; must run before the schema is used.
pub fn enable_initializers() -> Result<(), GateOpenedTooLate> {
    open_gate(GATE)
}

/// Whether initializers are enabled.
pub fn is_enabled() -> bool {
    schema().has_gate(GATE)
}

/// Whether an object waits for initializers.
pub fn is_pending(object: &Value) -> bool {
    is_enabled() && meta::value_at(object, &["metadata", "initializers"]).is_some_and(|list| !list.is_null())
}

/// Whether a request includes pending objects. A deletecollection always does.
pub fn includes_pending(request: &ResourceRequest) -> bool {
    request.query.is_set(INCLUDE_UNINITIALIZED) || request.verb == "deletecollection"
}

/// 404 if the object is hidden from this request.
pub fn check_visible(request: &ResourceRequest, object: &Value) -> Result<(), Status> {
    let hidden = is_pending(object) && !includes_pending(request);
    if hidden { Err(Status::not_found(&request.resource, &request.name)) } else { Ok(()) }
}

/// Returns the status with which an initializer rejected the object, if one did.
pub fn rejection_status(object: &Value) -> Option<Status> {
    let result = meta::value_at(object, &["metadata", "initializers", "result"]).filter(|result| result.is_object())?;
    is_pending(object).then(|| {
        let code = u16::try_from(meta::integer_at(result, &["code"])).ok().filter(|code| (400..600).contains(code));
        Status {
            code: code.unwrap_or(500),
            reason: Status::known_reason(meta::string_at(result, &["reason"])),
            message: meta::string_at(result, &["message"]).to_owned(),
            details: meta::value_at(result, &["details"]).cloned(),
            continue_token: None,
        }
    })
}
