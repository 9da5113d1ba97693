//! Initializers: what Kubernetes once had, behind a gate of the tables. A new object that a configuration names is stored
//! with a list of who must look at it first, in `metadata.initializers.pending`, and nobody sees it until that list is empty.
//!
//! This module says what is pending and lets a creation wait. The list is put there, and kept in order, by the admission
//! plug-in of the same name; selections and reads leave out what is pending.

use std::time::Duration;

use api::{
    Value, convert, meta,
    schema::{TooLate, open_gate, schema},
    status::Status,
};
use store::{Change, Watcher};

use crate::{document, registry::Registry, request::Target};

/// The gate of the tables that all of this is behind.
const GATE: &str = "initializers";
/// How long a creation waits, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The query's word for seeing everything.
const ALL: &str = "includeUninitialized";

/// Says, before anything else, that there will be initializers in this process.
pub fn enable() -> Result<(), TooLate> {
    open_gate(GATE)
}

/// Whether there are initializers at all.
pub fn enabled() -> bool {
    schema().has_gate(GATE)
}

/// Whether an object waits for initializers.
pub fn is_pending(object: &Value) -> bool {
    enabled() && meta::at(object, &["metadata", "initializers"]).is_some_and(|list| !list.is_null())
}

/// Whether a request is about all objects, pending or not. A collection is deleted as a whole.
pub fn wants_all(target: &Target) -> bool {
    target.query.flag(ALL) || target.verb == "deletecollection"
}

/// 404, if the object is hidden from who asks.
pub fn visible(target: &Target, object: &Value) -> Result<(), Status> {
    let hidden = is_pending(object) && !wants_all(target);
    if hidden { Err(Status::not_found(&target.resource, &target.name)) } else { Ok(()) }
}

/// Why an initializer has rejected the object, if one has.
pub fn rejection(object: &Value) -> Option<Status> {
    let result = meta::at(object, &["metadata", "initializers", "result"]).filter(|result| result.is_object())?;
    is_pending(object).then(|| {
        let code = u16::try_from(meta::number(result, &["code"])).ok().filter(|code| (400..600).contains(code));
        Status {
            code: code.unwrap_or(500),
            reason: Status::of_reason(meta::text(result, &["reason"])),
            message: meta::text(result, &["message"]).to_owned(),
            details: meta::at(result, &["details"]).cloned(),
            next: None,
        }
    })
}

impl Registry {
    /// Waits until an object that was just created is initialized, and returns it as it is then.
    pub async fn initialized(&self, target: &Target, object: Value) -> Result<Value, Status> {
        if !is_pending(&object) || wants_all(target) {
            return Ok(object);
        }
        let key = document::key(&target.resource, meta::namespace(&object), meta::name(&object));
        let after = meta::text(&object, &["metadata", "resourceVersion"]).parse().unwrap_or_default();
        let watcher = self.cache().watch(&key, after).map_err(Status::internal)?;
        let became = wait(target, watcher, &key);
        tokio::time::timeout(self.initialization(), became).await.unwrap_or_else(|_| {
            let (resource, name) = (target.resource.qualified_name(), meta::name(&object));
            let message = format!("Timeout: server has timed out waiting for the initialization of {resource} {name}");
            Err(Status { code: 504, reason: "Timeout", message, details: None, next: None })
        })
    }
}

async fn wait(target: &Target, mut watcher: Watcher, key: &str) -> Result<Value, Status> {
    loop {
        for change in watcher.take(usize::MAX).map_err(Status::internal)? {
            if **change.key() == *key
                && let Some(became) = became(target, &change)?
            {
                return Ok(became);
            }
        }
        watcher.changed().await;
    }
}

/// The object, if a change has made it visible.
fn became(target: &Target, change: &Change) -> Result<Option<Value>, Status> {
    let Some(item) = change.item.as_ref().or(change.previous.as_ref()) else { return Ok(None) };
    let object = document::object(&item.record).map_err(Status::internal)?;
    if let Some(status) = rejection(&object) {
        return Err(status);
    }
    if change.item.is_none() {
        return Err(Status::internal("object deleted while waiting for creation"));
    }
    Ok((!is_pending(&object)).then(|| convert::to(&target.resource, object)))
}
