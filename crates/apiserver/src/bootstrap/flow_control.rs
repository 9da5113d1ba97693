//! Reconciles the suggested priority levels and flow schemas with the stored ones.

use api::{Value, meta, schema::Resource, status::Status};
use apiserver_core::{
    bootstrap_table, clock,
    loopback::{LoopbackClient, ObjectKey},
};
use flowcontrol::bootstrap::AUTO_UPDATE;
use registry::Registry;
use serde_json::json;

const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Creates a missing object or restores its spec, and sets the `Dangling` condition of flow schemas.
pub async fn reconcile_object(registry: &Registry, resource: &'static Resource, object: Value) -> Result<(), Status> {
    let object = &object;
    let producer = LoopbackClient::with_field_manager(registry, PRODUCER);
    let place = ObjectKey { resource, namespace: "", name: meta::name(object) };
    match producer.read_object(place).await? {
        None => {
            super::create_missing(producer, place, object).await?;
        }
        Some(mut current) if current["metadata"]["annotations"][AUTO_UPDATE] == "true" => {
            if current["spec"] != object["spec"] {
                current["spec"] = object["spec"].clone();
                producer.update_object(place, &current).await?;
            }
        }
        Some(_) => {}
    }
    if resource.name == "flowschemas" { set_not_dangling(registry, place, object).await } else { Ok(()) }
}

async fn set_not_dangling(registry: &Registry, place: ObjectKey<'_>, schema: &Value) -> Result<(), Status> {
    let consumer = LoopbackClient::with_field_manager(registry, CONSUMER);
    let current = consumer.read_object(place).await?.unwrap_or_default();
    if !meta::list_at(&current, &["status", "conditions"]).is_empty() {
        return Ok(());
    }
    let level = meta::string_at(schema, &["spec", "priorityLevelConfiguration", "name"]);
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists");
    let condition = json!({"type": "Dangling", "status": "False", "reason": "Found", "message": message,
        "lastTransitionTime": clock::now_in_seconds()});
    let status = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": bootstrap_table::object_metadata(place.name), "status": {"conditions": [condition]}});
    consumer.apply_status(place, &status).await.map(drop)
}
