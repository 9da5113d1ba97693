//! Ports of nodes that pods occupy.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::intern::intern;

const ANY_ADDRESS: &str = "0.0.0.0";

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    address: Arc<str>,
    protocol: Arc<str>,
    port: i32,
}

impl HostPort {
    /// Returns the ports of a pod's containers and sidecars.
    pub fn of_pod(spec: &PodSpec) -> Box<[Self]> {
        let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
        let ports = sidecars.chain(&spec.containers).flat_map(|container| container.ports.iter().flatten());
        ports
            .filter_map(|port| {
                let number = port.host_port.filter(|port| *port > 0)?;
                let text = |text: Option<&String>, default: &str| match text.map_or("", String::as_str) {
                    "" => intern(default),
                    text => intern(text),
                };
                let address = text(port.host_ip.as_ref(), ANY_ADDRESS);
                Some(Self { address, protocol: text(port.protocol.as_ref(), "TCP"), port: number })
            })
            .collect()
    }

    /// Whether two pods with these ports exclude each other.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address
                || self.address.as_ref() == ANY_ADDRESS
                || other.address.as_ref() == ANY_ADDRESS)
    }
}

/// Whether none of the wanted ports conflicts with one in use.
pub fn fits_ports(wanted: &[HostPort], used: &[HostPort]) -> bool {
    wanted.iter().all(|port| !used.iter().any(|used| port.conflicts_with(used)))
}
