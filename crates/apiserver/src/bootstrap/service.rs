//! The service `kubernetes` and the default `ServiceCIDR`.

use api::{Value, meta, status::Status};
use apiserver_core::{
    clock,
    loopback::{self, LoopbackClient, ObjectKey},
};
use registry::Registry;
use serde_json::json;

use super::create_missing;
use crate::ServerOptions;

const NAME: &str = "kubernetes";
const CONTROLLER: &str = "kubernetes-service-cidr-controller";
/// The default port of the API server.
const PORT: u16 = 6443;

/// Creates the default `ServiceCIDR` and sets its condition `Ready`.
pub async fn create_service_cidr(registry: &Registry, settings: &ServerOptions) -> Result<(), Status> {
    let resource = loopback::find_resource("networking.k8s.io", "v1", "servicecidrs")?;
    let place = ObjectKey { resource, namespace: "", name: NAME };
    let wanted: Vec<String> = settings.service_networks.iter().map(ToString::to_string).collect();
    create_missing(
        LoopbackClient::new(registry),
        place,
        &json!({"metadata": {"name": NAME}, "spec": {"cidrs": wanted}}),
    )
    .await?;
    let Some(current) = LoopbackClient::new(registry).read_object(place).await? else { return Ok(()) };
    let found: Vec<&str> = meta::list_at(&current, &["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
    if found != wanted {
        tracing::warn!(
            flag = wanted.join(","),
            object = found.join(","),
            "bootstrap: the service CIDR differs from the ServiceCIDR kubernetes, delete that object to replace it"
        );
    }
    if !meta::list_at(&current, &["status", "conditions"]).is_empty() {
        return Ok(());
    }
    let condition = json!({"type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": clock::now_in_seconds()});
    let status = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": NAME},
        "status": {"conditions": [condition]}});
    LoopbackClient::with_field_manager(registry, CONTROLLER).apply_status(place, &status).await.map(drop)
}

/// Creates the service `kubernetes` or updates its ports.
pub async fn reconcile_kubernetes_service(registry: &Registry, settings: &ServerOptions) -> Result<(), Status> {
    let Some(network) = settings.service_networks.first() else { return Ok(()) };
    let place =
        ObjectKey { resource: loopback::find_resource("", "v1", "services")?, namespace: "default", name: NAME };
    let target = settings.advertise.map_or(PORT, |(_, port)| port);
    let mut port = json!({"name": "https", "port": 443, "protocol": "TCP", "targetPort": target});
    let mut kind = "ClusterIP";
    if let Some(node_port) = settings.kubernetes_node_port {
        port["nodePort"] = node_port.into();
        kind = "NodePort";
    }
    let object = json!({
        "metadata": {"name": NAME, "namespace": "default", "labels": {"provider": "kubernetes", "component": "apiserver"}},
        "spec": {"type": kind, "ports": [port], "clusterIP": network.address_at(1).to_string(), "sessionAffinity": "None",
            "ipFamilyPolicy": "SingleStack"},
    });
    let system = LoopbackClient::new(registry);
    match system.read_object(place).await? {
        None => create_missing(system, place, &object).await.map(drop),
        Some(mut current) if current["spec"]["ports"] != object["spec"]["ports"] || current["spec"]["type"] != kind => {
            current["spec"]["ports"] = object["spec"]["ports"].clone();
            current["spec"]["type"] = kind.into();
            system.update_object(place, &current).await.map(drop)
        }
        Some(_) => Ok(()),
    }
}
