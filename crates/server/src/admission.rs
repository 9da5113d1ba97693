//! Admission: whether a write should happen. One rule so far: namespaces must exist, and take nothing new while they end.

use api::{Value, meta, schema::Resource, status::Status};

use crate::{registry::Registry, strategies, system};

/// Whether a new object is admitted.
pub async fn create(registry: &Registry, resource: &Resource, object: &Value) -> Result<(), Status> {
    let namespace = meta::namespace(object);
    if !resource.namespaced() || namespace.is_empty() {
        return Ok(());
    }
    let namespaces = system::resource("", "v1", "namespaces")?;
    let (found, _) = registry.read_object(namespaces, "", namespace).await?;
    if meta::is_deleting(&found) {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Status::forbidden(resource, meta::name(object), &why);
        if let Some(details) = &mut status.details {
            details["causes"] = serde_json::json!([{"reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"}]);
        }
        return Err(status);
    }
    Ok(())
}

/// Whether an object may be deleted.
pub fn delete(resource: &Resource, name: &str) -> Result<(), Status> {
    match strategies::of(resource).refuses_deletion(name) {
        Some(why) => Err(Status::forbidden(resource, name, why)),
        None => Ok(()),
    }
}
