//! The audit event of one request, sent to the backends at each stage.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Value, meta, status::Status};
use apiserver_core::{User, attributes::Attributes, audit::AuditAnnotations, body::RequestBody, clock};
use jiff::Timestamp;
use serde_json::json;

use super::{Auditor, Level, Stage, event, policy::RequestAuditConfig};

/// The parts of a request that its event contains beyond the attributes.
pub struct Request<'a> {
    /// Audit ID.
    pub id: &'a str,
    /// Path and query.
    pub uri: &'a str,
    /// Source IPs.
    pub sources: Vec<String>,
    /// User agent.
    pub agent: &'a str,
    /// Time of receipt.
    pub received: Timestamp,
}

/// The audit event of a request.
pub struct AuditContext {
    auditor: Arc<Auditor>,
    ruling: RequestAuditConfig,
    event: Mutex<Value>,
}

impl AuditContext {
    pub(super) fn new(
        auditor: Arc<Auditor>,
        ruling: RequestAuditConfig,
        request: &Request<'_>,
        asked: &Attributes<'_>,
    ) -> Self {
        Self { auditor, ruling, event: Mutex::new(event::begun(ruling.level, request, asked)) }
    }

    fn event(&self) -> MutexGuard<'_, Value> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The audit level.
    pub fn level(&self) -> Level {
        self.ruling.level
    }

    /// Sets an annotation; the first value of a key wins.
    pub fn annotate(&self, key: &str, value: String) {
        let mut event = self.event();
        let notes = meta::field_mut(&mut event, "annotations");
        if notes.contains_key(key) {
            return tracing::debug!(key, "an audit annotation is already set");
        }
        notes.insert(key.to_owned(), value.into());
    }

    /// Records the impersonated user.
    pub fn impersonates(&self, user: &User, constraint: &str) {
        let mut event = self.event();
        event["impersonatedUser"] = event::user(user);
        if !constraint.is_empty() {
            event["authenticationMetadata"] = json!({"impersonationConstraint": constraint});
        }
    }

    /// Records the request body as far as the level allows; at least its object reference.
    pub fn sent(&self, input: &RequestBody) {
        if input.body.is_empty() {
            return;
        }
        let Some(mut object) = input.decode_any() else { return };
        let mut event = self.event();
        for (field, of) in
            [("name", "name"), ("uid", "uid"), ("resourceVersion", "resourceVersion"), ("namespace", "namespace")]
        {
            let value = meta::string_at(&object, &["metadata", of]);
            let reference = meta::field_mut(&mut event, "objectRef");
            if !value.is_empty() && !reference.contains_key(field) {
                reference.insert(field.to_owned(), value.into());
            }
        }
        if self.ruling.level >= Level::Request {
            self.trim(&mut object);
            event["requestObject"] = object;
        }
    }

    /// Records the response.
    pub fn answered(&self, code: u16, object: Option<Value>) {
        let mut event = self.event();
        let mut status = json!({"metadata": {}, "code": code});
        let Some(mut object) = object else { return event["responseStatus"] = status };
        if meta::string_at(&object, &["kind"]) == "Status" && meta::string_at(&object, &["apiVersion"]) == "v1" {
            for field in ["status", "message", "reason", "details"] {
                if let Some(value) = object.get(field) {
                    status[field] = value.clone();
                }
            }
        }
        event["responseStatus"] = status;
        if self.ruling.level >= Level::RequestResponse {
            self.trim(&mut object);
            event["responseObject"] = object;
        }
    }

    /// Removes managed fields, if the policy omits them.
    fn trim(&self, object: &mut Value) {
        if !self.ruling.omit_managed_fields {
            return;
        }
        let remove = |object: &mut Value| {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        };
        remove(object);
        object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(remove);
    }

    /// Sends the event at a stage.
    pub async fn reach(&self, stage: Stage) -> Result<(), Status> {
        if !self.ruling.tells(stage) {
            return Ok(());
        }
        let event = {
            let mut event = self.event();
            event["stage"] = stage.name().into();
            event["stageTimestamp"] = api::time::format_micros(clock::now()).into();
            event.clone()
        };
        self.auditor.tell(stage, event).await
    }
}

impl AuditAnnotations for AuditContext {
    fn annotate(&self, key: &str, value: String) {
        AuditContext::annotate(self, key, value);
    }
}
