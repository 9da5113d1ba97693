//! May this user do this? Whoever shows a certificate of the cluster's CA may do everything; nobody else may do anything
//! but ask for health and version.

use api::status::Status;
use serde_json::json;

use crate::{User, authenticate::ANONYMOUS, request::Target};

/// What anonymous requests may read.
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// Whether `user` may use a path that is not a resource's.
pub fn path(user: &User, verb: &str, path: &str) -> Result<(), Status> {
    if user.name != ANONYMOUS || PUBLIC.contains(&path) {
        return Ok(());
    }
    Err(denied(format!("forbidden: User \"system:anonymous\" cannot {verb} path {path:?}"), json!({})))
}

/// Whether `user` may do what `target` says.
pub fn target(user: &User, target: &Target) -> Result<(), Status> {
    if user.name != ANONYMOUS {
        return Ok(());
    }
    let resource = target.resource;
    let scope = match target.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let why = format!(
        "User \"system:anonymous\" cannot {} resource {:?} in API group {:?} {scope}",
        target.verb, resource.name, resource.group
    );
    Err(Status::forbidden(resource, &target.name, &why))
}

fn denied(message: String, details: serde_json::Value) -> Status {
    Status { code: 403, reason: "Forbidden", message, details: Some(details), next: None }
}
