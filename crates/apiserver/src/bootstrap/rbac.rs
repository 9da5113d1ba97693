//! Reconciles the bootstrap policy of RBAC with the stored roles and bindings.

use api::{meta, status::Status};
use apiserver_core::loopback::{LoopbackClient, ObjectKey};
use authz::bootstrap_policy::{AUTO_UPDATE, PolicyObject};
use registry::Registry;

use super::reconcile;

/// Creates an object of the policy or adds missing rules and subjects.
pub async fn reconcile_policy_object(registry: &Registry, wanted: PolicyObject) -> Result<(), Status> {
    let system = LoopbackClient::new(registry);
    let PolicyObject { resource, object } = wanted;
    let place = ObjectKey { resource, namespace: meta::namespace(&object), name: meta::name(&object) };
    let Some(current) = system.read_object(place).await? else {
        return super::create_missing(system, place, &object).await.map(drop);
    };
    if current["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Ok(());
    }
    if current.get("roleRef") != object.get("roleRef") {
        // `roleRef` is immutable: the binding is recreated.
        system.delete_object(place).await?;
        return system.create_object(place, &object).await.map(drop);
    }
    match reconcile::merge_missing(&current, &object) {
        Some(merged) => system.update_object(place, &merged).await.map(drop),
        None => Ok(()),
    }
}
