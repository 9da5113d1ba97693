//! Fields of services that allocators read.

use api::{Value, meta, status::Status, validate::FieldError};
use apiserver_core::loopback;

pub(super) fn invalid_service(service: &Value, errors: &[FieldError]) -> Status {
    match loopback::find_resource("", "v1", "services") {
        Ok(resource) => Status::invalid_object(resource, meta::name(service), errors),
        Err(status) => status,
    }
}

pub(super) fn service_type(service: &Value) -> &str {
    meta::string_at(service, &["spec", "type"])
}

/// A nonzero port number, which may be out of range.
pub(super) fn nonzero_port(value: &Value) -> Option<i64> {
    value.as_i64().filter(|port| *port != 0)
}

pub(super) fn node_ports_of(service: &Value) -> Vec<i64> {
    meta::list_at(service, &["spec", "ports"]).iter().filter_map(|entry| nonzero_port(&entry["nodePort"])).collect()
}

pub(super) fn allocates_node_ports(service: &Value) -> bool {
    service_type(service) == "NodePort"
        || service_type(service) == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] == true
}

/// Whether the type has node ports unless their allocation is disabled.
pub fn needs_node_ports(service: &Value) -> bool {
    service_type(service) == "NodePort"
        || service_type(service) == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false
}

/// Whether the service has a health check node port.
pub fn needs_health_check(service: &Value) -> bool {
    service_type(service) == "LoadBalancer" && meta::string_at(service, &["spec", "externalTrafficPolicy"]) == "Local"
}
