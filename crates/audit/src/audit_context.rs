//! The audit event of one request, sent to the backends at each stage.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Value, meta, status::Status};
use apiserver_core::{User, attributes::Attributes, audit::AuditAnnotations, body::RequestBody, clock};
use serde_json::json;

use super::{
    Auditor, Level, Stage,
    event::{self, AuditedRequest},
    policy::RequestAuditConfig,
};

/// The audit event of a request.
pub struct AuditContext {
    auditor: Arc<Auditor>,
    request_config: RequestAuditConfig,
    event: Mutex<Value>,
}

impl AuditContext {
    pub(super) fn new(
        auditor: Arc<Auditor>,
        request_config: RequestAuditConfig,
        request: &AuditedRequest<'_>,
        attributes: &Attributes<'_>,
    ) -> Self {
        Self {
            auditor,
            request_config,
            event: Mutex::new(event::event_from_request(request_config.level, request, attributes)),
        }
    }

    fn lock_event(&self) -> MutexGuard<'_, Value> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The audit level.
    pub fn audit_level(&self) -> Level {
        self.request_config.level
    }

    /// Sets an annotation; the first value of a key wins.
    pub fn add_annotation(&self, key: &str, value: String) {
        let mut event = self.lock_event();
        let annotations = meta::field_mut(&mut event, "annotations");
        if annotations.contains_key(key) {
            return tracing::debug!(key, "an audit annotation is already set");
        }
        annotations.insert(key.to_owned(), value.into());
    }

    /// Records the impersonated user.
    pub fn log_impersonated_user(&self, user: &User, constraint: &str) {
        let mut event = self.lock_event();
        event["impersonatedUser"] = event::user_info(user);
        if !constraint.is_empty() {
            event["authenticationMetadata"] = json!({"impersonationConstraint": constraint});
        }
    }

    /// Records the request body as far as the level allows; at least its object reference.
    pub fn log_request_object(&self, input: &RequestBody) {
        if input.body.is_empty() {
            return;
        }
        let Some(mut object) = input.decode_any() else { return };
        let mut event = self.lock_event();
        for (field, of) in
            [("name", "name"), ("uid", "uid"), ("resourceVersion", "resourceVersion"), ("namespace", "namespace")]
        {
            let value = meta::string_at(&object, &["metadata", of]);
            let reference = meta::field_mut(&mut event, "objectRef");
            if !value.is_empty() && !reference.contains_key(field) {
                reference.insert(field.to_owned(), value.into());
            }
        }
        if self.request_config.level >= Level::Request {
            self.omit_managed_fields(&mut object);
            event["requestObject"] = object;
        }
    }

    /// Records the response.
    pub fn log_response_object(&self, code: u16, object: Option<Value>) {
        let mut event = self.lock_event();
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
        if self.request_config.level >= Level::RequestResponse {
            self.omit_managed_fields(&mut object);
            event["responseObject"] = object;
        }
    }

    /// Removes managed fields, if the policy omits them.
    fn omit_managed_fields(&self, object: &mut Value) {
        if !self.request_config.omit_managed_fields {
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
    pub async fn process_stage(&self, stage: Stage) -> Result<(), Status> {
        if !self.request_config.records_stage(stage) {
            return Ok(());
        }
        let event = {
            let mut event = self.lock_event();
            event["stage"] = stage.as_str().into();
            event["stageTimestamp"] = api::time::format_micros(clock::now()).into();
            event.clone()
        };
        self.auditor.process_event(stage, event).await
    }
}

impl AuditAnnotations for AuditContext {
    fn annotate(&self, key: &str, value: String) {
        AuditContext::add_annotation(self, key, value);
    }
}
