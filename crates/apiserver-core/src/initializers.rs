//! Initializers: what Kubernetes once had, behind a gate of the tables. A new object that a configuration names is stored
//! with a list of who must look at it first, in `metadata.initializers.pending`, and nobody sees it until that list is empty.
//!
//! This module says what is pending and lets a creation wait. The list is put there, and kept in order, by the admission
//! plug-in of the same name; selections and reads leave out what is pending.

use std::time::Duration;

use api::{
    Value, meta,
    schema::{GateOpenedTooLate, open_gate, schema},
    status::Status,
};

use crate::request::ResourceRequest;

/// The gate of the tables that all of this is behind.
const GATE: &str = "initializers";
/// How long a creation waits, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The query's word for seeing everything.
const ALL: &str = "includeUninitialized";

/// Says, before anything else, that there will be initializers in this process.
pub fn enable() -> Result<(), GateOpenedTooLate> {
    open_gate(GATE)
}

/// Whether there are initializers at all.
pub fn enabled() -> bool {
    schema().has_gate(GATE)
}

/// Whether an object waits for initializers.
pub fn is_pending(object: &Value) -> bool {
    enabled() && meta::value_at(object, &["metadata", "initializers"]).is_some_and(|list| !list.is_null())
}

/// Whether a request is about all objects, pending or not. A collection is deleted as a whole.
pub fn wants_all(target: &ResourceRequest) -> bool {
    target.query.flag(ALL) || target.verb == "deletecollection"
}

/// 404, if the object is hidden from who asks.
pub fn visible(target: &ResourceRequest, object: &Value) -> Result<(), Status> {
    let hidden = is_pending(object) && !wants_all(target);
    if hidden { Err(Status::not_found(&target.resource, &target.name)) } else { Ok(()) }
}

/// Why an initializer has rejected the object, if one has.
pub fn rejection(object: &Value) -> Option<Status> {
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
