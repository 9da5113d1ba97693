//! The fields of a Pod that network policies read.

use std::net::IpAddr;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use super::{compact_metadata, impl_view_resource};

/// A Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PodView {
    #[serde(deserialize_with = "compact_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpecView,
    #[serde(default)]
    pub status: PodStatusView,
}

impl_view_resource!(PodView, "Pod", "", "v1", "pods", NamespaceResourceScope);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpecView {
    pub node_name: Option<Box<str>>,
    pub host_network: bool,
    pub containers: Vec<ContainerView>,
    pub init_containers: Vec<ContainerView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerView {
    pub ports: Vec<ContainerPortView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerPortView {
    pub name: Option<Box<str>>,
    pub container_port: u16,
    pub protocol: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatusView {
    pub phase: Option<Box<str>>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<Box<str>>,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIpView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodIpView {
    pub ip: Box<str>,
}

impl PodView {
    /// Whether the pod has a network of its own that is in use.
    pub fn is_connected(&self) -> bool {
        !self.spec.host_network && !matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// The addresses of one IP family.
    pub fn addresses(&self, is_ipv4: bool) -> impl Iterator<Item = IpAddr> {
        let listed = self.status.pod_ips.iter().map(|ip| &ip.ip);
        let single = self.status.pod_ip.iter().filter(|_| self.status.pod_ips.is_empty());
        listed.chain(single).filter_map(|ip| ip.parse().ok()).filter(move |ip: &IpAddr| ip.is_ipv4() == is_ipv4)
    }

    /// The container ports of a name: protocol and number.
    pub fn named_ports(&self, name: &str) -> impl Iterator<Item = (Option<&str>, u16)> {
        let containers = self.spec.containers.iter().chain(&self.spec.init_containers);
        let ports = containers.flat_map(|container| &container.ports);
        let named = ports.filter(move |port| port.name.as_deref() == Some(name));
        named.map(|port| (port.protocol.as_deref(), port.container_port))
    }
}
