//! The options of a request as an object, for webhooks and policies.

use api::Value;
use serde_json::json;

use super::{AdmissionAttributes, Operation};

/// Builds `CreateOptions` or `UpdateOptions` from the query; `DeleteOptions` come with the request.
pub fn request_options(attributes: &AdmissionAttributes<'_>) -> Value {
    let kind = match attributes.operation {
        Operation::Connect => return Value::Null,
        Operation::Delete => return attributes.options.cloned().unwrap_or(Value::Null),
        Operation::Create => "CreateOptions",
        // A patch is admitted as the update that it results in.
        Operation::Update => "UpdateOptions",
    };
    let query = &attributes.target.query;
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    let dry_run: Vec<&str> = query.get_all("dryRun").filter(|value| !value.is_empty()).collect();
    if !dry_run.is_empty() {
        options["dryRun"] = json!(dry_run);
    }
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = query.get(field).filter(|value| !value.is_empty()) {
            options[field] = value.into();
        }
    }
    options
}
