//! Services: allocation of cluster IPs and node ports, and removal of fields that a new type does not use.

use api::{Value, meta};
use apiserver_core::User;

use super::Strategy;
use crate::allocate::{
    Allocator,
    service::ServiceAllocator,
    service_fields::{needs_health_check, needs_node_ports},
};

/// The strategy of services.
pub struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn allocator(&self) -> Option<&dyn Allocator> {
        Some(&ServiceAllocator)
    }

    fn prepare_create(&self, service: &mut Value, _: &User) {
        drop_internal_traffic_policy(service);
    }

    /// Drops unchanged fields that the new type does not use; changed ones are left for validation to reject.
    fn prepare_update(&self, service: &mut Value, current: &Value) {
        drop_internal_traffic_policy(service);
        let (kind, before) = (service_type(service).to_owned(), self::service_type(current));
        let (had_ports, has_ports) = (needs_node_ports(current), needs_node_ports(service));
        let (had_check, has_check) = (needs_health_check(current), needs_health_check(service));
        let (was_reachable, is_reachable) = (is_externally_accessible(current), is_externally_accessible(service));
        if before != "ExternalName" && kind == "ExternalName" {
            drop_unchanged(service, current, &["clusterIP", "clusterIPs"]);
            drop_unchanged(service, current, &["ipFamilies"]);
            drop_unchanged(service, current, &["ipFamilyPolicy"]);
        }
        if had_ports && !has_ports && node_ports(service) == node_ports(current) {
            for port in service["spec"]["ports"].as_array_mut().into_iter().flatten() {
                meta::object_mut(port).remove("nodePort");
            }
        }
        if had_check && !has_check {
            drop_unchanged(service, current, &["healthCheckNodePort"]);
        }
        if before == "LoadBalancer" && kind != "LoadBalancer" {
            drop_unchanged(service, current, &["allocateLoadBalancerNodePorts"]);
            drop_unchanged(service, current, &["loadBalancerClass"]);
        }
        if was_reachable && !is_reachable {
            drop_unchanged(service, current, &["externalTrafficPolicy"]);
        }
        if kind != "LoadBalancer" {
            meta::field_mut(service, "status").insert("loadBalancer".into(), serde_json::json!({}));
        }
    }
}

/// `internalTrafficPolicy` does not apply to `ExternalName`.
fn drop_internal_traffic_policy(service: &mut Value) {
    if service_type(service) == "ExternalName" {
        meta::field_mut(service, "spec").remove("internalTrafficPolicy");
    }
}

fn service_type(service: &Value) -> &str {
    meta::string_at(service, &["spec", "type"])
}

fn is_externally_accessible(service: &Value) -> bool {
    matches!(service_type(service), "LoadBalancer" | "NodePort")
        || service_type(service) == "ClusterIP" && !meta::list_at(service, &["spec", "externalIPs"]).is_empty()
}

fn node_ports(service: &Value) -> Vec<i64> {
    meta::list_at(service, &["spec", "ports"]).iter().map(|port| meta::integer_at(port, &["nodePort"])).collect()
}

fn drop_unchanged(service: &mut Value, current: &Value, fields: &[&str]) {
    if fields.iter().all(|field| service["spec"].get(*field) == current["spec"].get(*field)) {
        let spec = meta::field_mut(service, "spec");
        fields.iter().for_each(|field| drop(spec.remove(*field)));
    }
}
