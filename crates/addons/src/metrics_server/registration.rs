//! The objects behind which the metrics server is reached: its Service with an endpoint, and the APIService.

use std::net::SocketAddr;

use client::ApiErrorExt;
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "ferry-metrics";
const API_SERVICE: &str = "v1beta1.metrics.k8s.io";
/// The name in the server's certificate.
pub const SERVICE_DNS_NAME: &str = "ferry-metrics.kube-system.svc";

/// Applies Service and endpoint, and registers the API unless another implementation has it.
pub async fn register_metrics_api(admin: &Client, address: SocketAddr, ca: &str) -> kube::Result<()> {
    let apply = PatchParams::apply("ferry").force();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": SERVICE },
        "spec": { "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": address.port() }] } });
    let services: Api<Service> = Api::namespaced(admin.clone(), NAMESPACE);
    services.patch(SERVICE, &apply, &Patch::Apply(&service)).await?;
    let labels = json!({
        "kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": "ferry" });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": { "name": SERVICE, "labels": labels },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{ "addresses": [address.ip().to_string()], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": address.port(), "protocol": "TCP" }] });
    let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), NAMESPACE);
    slices.patch(SERVICE, &apply, &Patch::Apply(&slice)).await?;

    let api_services: Api<APIService> = Api::all(admin.clone());
    let registered = api_services.get_opt(API_SERVICE).await?;
    let service_of = |found: &APIService| found.spec.as_ref()?.service.as_ref()?.name.clone();
    if registered.is_some_and(|found| service_of(&found).as_deref() != Some(SERVICE)) {
        return Ok(());
    }
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": API_SERVICE },
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": NAMESPACE, "name": SERVICE, "port": 443 },
            "caBundle": k8s_openapi::ByteString(ca.as_bytes().to_vec()) } });
    let object: APIService = serde_json::from_value(api_service.clone()).map_err(kube::Error::SerdeError)?;
    match api_services.create(&PostParams::default(), &object).await {
        Err(error) if error.is_already_exists() => {
            api_services.patch(API_SERVICE, &apply, &Patch::Apply(&api_service)).await.map(drop)
        }
        other => other.map(drop),
    }
}
