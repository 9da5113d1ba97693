//! Services: addresses and ports are handed out to them, and what a new type has no use for is dropped.

use api::{Value, meta};
use apiserver_core::User;

use super::Strategy;
use crate::allocate::{
    Allocator,
    service::{Services, needs_health_check, needs_node_ports},
};

/// The strategy of services.
pub struct Service;

impl Strategy for Service {
    fn allocator(&self) -> Option<&dyn Allocator> {
        Some(&Services)
    }

    fn prepare_create(&self, service: &mut Value, _: &User) {
        no_traffic_inside(service);
    }

    /// A field is dropped where the new type has no use for it and the client did not change it; if it did, validation
    /// has something to say.
    fn prepare_update(&self, service: &mut Value, current: &Value) {
        no_traffic_inside(service);
        let (kind, before) = (kind(service).to_owned(), self::kind(current));
        let (had_ports, has_ports) = (needs_node_ports(current), needs_node_ports(service));
        let (had_check, has_check) = (needs_health_check(current), needs_health_check(service));
        let (was_reachable, is_reachable) = (is_reachable(current), is_reachable(service));
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

/// A name has no endpoints to choose from.
fn no_traffic_inside(service: &mut Value) {
    if kind(service) == "ExternalName" {
        meta::field_mut(service, "spec").remove("internalTrafficPolicy");
    }
}

fn kind(service: &Value) -> &str {
    meta::string_at(service, &["spec", "type"])
}

fn is_reachable(service: &Value) -> bool {
    matches!(kind(service), "LoadBalancer" | "NodePort")
        || kind(service) == "ClusterIP" && !meta::list_at(service, &["spec", "externalIPs"]).is_empty()
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
