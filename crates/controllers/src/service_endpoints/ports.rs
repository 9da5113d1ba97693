//! Ports of endpoints, in upstream's order: by the FNV-1a hash of Go's printed form of the port.

use k8s_openapi::{
    api::{
        core::v1::{Service, ServicePort},
        discovery::v1::EndpointPort,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::pod_view::{ContainerView, PodView};

/// Returns the number that a service port targets on the pod; a named port is looked up in containers and sidecars.
pub(crate) fn find_port(pod: &PodView, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let is_sidecar = |container: &&ContainerView| container.restart_policy.as_deref() == Some("Always");
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(is_sidecar));
    let wanted = port.protocol.as_deref().unwrap_or("TCP");
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|candidate| {
        candidate.name.as_ref() == Some(name) && candidate.protocol.as_deref().unwrap_or("TCP") == wanted
    });
    named.map(|port| port.container_port)
}

/// Returns the ports that the pod serves for the service.
pub(crate) fn endpoint_ports(service: &Service, pod: &PodView) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let found = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            port: Some(find_port(pod, port)?),
            name: Some(port.name.clone().unwrap_or_default()),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    sort_ports(found.collect())
}

/// Identity of a set of ports: name, protocol, number and application protocol of each.
pub(crate) type EndpointPortsKey = Vec<(Option<String>, Option<String>, Option<i32>, Option<String>)>;

/// Returns the identity of sorted ports.
pub(crate) fn ports_key(ports: &[EndpointPort]) -> EndpointPortsKey {
    let key = |port: &EndpointPort| (port.name.clone(), port.protocol.clone(), port.port, port.app_protocol.clone());
    ports.iter().map(key).collect()
}

/// Sorts ports in upstream's order.
pub(crate) fn sort_ports(mut ports: Vec<EndpointPort>) -> Vec<EndpointPort> {
    ports.sort_by_cached_key(|port| fnv1a_128(&print_slice_port(port)));
    ports
}

/// Prints a `discovery/v1` port as Go's `spew` does.
fn print_slice_port(port: &EndpointPort) -> String {
    format!(
        "(v1.EndpointPort){{Name:{} Protocol:{} Port:{} AppProtocol:{}}}",
        print_pointer("string", port.name.as_ref()),
        print_pointer("v1.Protocol", port.protocol.as_ref()),
        print_pointer("int32", port.port.as_ref()),
        print_pointer("string", port.app_protocol.as_ref()),
    )
}

/// Prints an optional value as Go's `spew` prints a pointer.
pub(crate) fn print_pointer(type_: &str, value: Option<&impl ToString>) -> String {
    format!("(*{type_}){}", value.map_or_else(|| "<nil>".into(), ToString::to_string))
}

/// 128-bit FNV-1a.
pub(crate) fn fnv1a_128(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn hash_equals_upstreams() {
        let check = |port: Value, expected: u128| {
            let port: EndpointPort = serde_json::from_value(port).unwrap();
            assert_eq!(fnv1a_128(&print_slice_port(&port)), expected);
        };
        check(json!({"name": "http", "port": 80, "protocol": "TCP"}), 0xb6c4_d325_122a_5ba6_f795_b0bb_ffce_bb6f);
        check(
            json!({"name": "", "port": 80, "protocol": "TCP", "appProtocol": "h2c"}),
            0x1192_b420_de09_128e_1934_91d3_9242_8cc7,
        );
        check(json!({}), 0xad86_6eb7_cd51_62a9_e204_34eb_d9de_eacd);
    }

    #[test]
    fn named_port_is_found_in_containers_and_sidecars() {
        let pod: PodView = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "a", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}]}],
            "initContainers": [
                {"name": "i", "ports": [{"name": "init", "containerPort": 1, "protocol": "TCP"}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"name": "metrics", "containerPort": 9, "protocol": "UDP"}]}]}}))
        .unwrap();
        let find = |target: Value, protocol: &str| {
            let port = json!({"port": 5, "protocol": protocol, "targetPort": target});
            find_port(&pod, &serde_json::from_value(port).unwrap())
        };
        assert_eq!(find(json!(8080), "TCP"), Some(8080));
        assert_eq!(find(json!("http"), "TCP"), Some(80));
        assert_eq!(find(json!("http"), "UDP"), None);
        assert_eq!(find(json!("init"), "TCP"), None);
        assert_eq!(find(json!("metrics"), "UDP"), Some(9));
    }
}
