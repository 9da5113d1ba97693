//! A Service as the proxy of one IP family sees it.

use std::net::IpAddr;

use sys::net::IpCidr;

use crate::{
    ranges::merge_ranges,
    service_protocol::ServiceProtocol,
    views::{ServicePortView, ServiceView},
};

/// The affinity timeout if a Service names none.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FamilyServicePort {
    pub name: String,
    pub protocol: ServiceProtocol,
    pub port: u16,
    pub node_port: Option<u16>,
}

/// A Service restricted to one IP family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FamilyService {
    pub cluster_ip: IpAddr,
    pub external_ips: Vec<IpAddr>,
    pub load_balancer_ips: Vec<IpAddr>,
    /// Empty allows every source.
    pub source_ranges: Vec<IpCidr>,
    /// The timeout of client IP affinity in seconds.
    pub affinity: Option<u32>,
    pub external_local: bool,
    pub internal_local: bool,
    pub ports: Vec<FamilyServicePort>,
}

impl FamilyService {
    /// Reads a Service; `None` if the proxy of this family has nothing to do for it.
    pub fn from_view(service: &ServiceView, ipv4: bool) -> Option<Self> {
        if !service.is_proxied() {
            return None;
        }
        let spec = &service.spec;
        let of_family = |texts: &mut dyn Iterator<Item = &String>| -> Vec<IpAddr> {
            let mut ips: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
            ips.retain(|ip| ip.is_ipv4() == ipv4);
            ips.sort_unstable();
            ips.dedup();
            ips
        };
        let cluster_ips = of_family(&mut spec.cluster_ips.iter().chain(&spec.cluster_ip));
        let virtual_ips = service.status.load_balancer.ingress.iter();
        let virtual_ips = virtual_ips.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
        let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
        Some(Self {
            cluster_ip: *cluster_ips.first()?,
            external_ips: of_family(&mut spec.external_ips.iter()),
            load_balancer_ips: of_family(&mut virtual_ips.filter_map(|ingress| ingress.ip.as_ref())),
            source_ranges: source_ranges(&spec.load_balancer_source_ranges, ipv4),
            affinity: affinity_timeout(service),
            external_local: is_local(&spec.external_traffic_policy),
            internal_local: is_local(&spec.internal_traffic_policy),
            ports: spec.ports.iter().filter_map(family_port).collect(),
        })
    }

    /// Whether a port can be reached from outside of the cluster.
    pub fn is_external(&self, port: &FamilyServicePort) -> bool {
        port.node_port.is_some() || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }
}

fn family_port(port: &ServicePortView) -> Option<FamilyServicePort> {
    Some(FamilyServicePort {
        name: port.name.clone(),
        protocol: ServiceProtocol::parse(port.protocol.as_deref())?,
        port: port.port,
        node_port: port.node_port.filter(|port| *port != 0),
    })
}

/// A range of all addresses allows every source, as no range does.
fn source_ranges(texts: &[String], ipv4: bool) -> Vec<IpCidr> {
    let mut ranges: Vec<IpCidr> = texts.iter().filter_map(|text| text.trim().parse().ok()).collect();
    ranges.retain(|range| range.is_ipv4() == ipv4);
    if ranges.iter().any(|range| range.prefix == 0) {
        return Vec::new();
    }
    ranges.iter_mut().for_each(|range| *range = range.network());
    merge_ranges(ranges)
}

fn affinity_timeout(service: &ServiceView) -> Option<u32> {
    if service.spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let config = service.spec.session_affinity_config.as_ref();
    let timeout = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    Some(timeout.unwrap_or(DEFAULT_AFFINITY_SECONDS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(spec: serde_json::Value, ipv4: bool) -> Option<FamilyService> {
        let object = json!({ "metadata": { "name": "s", "namespace": "d" }, "spec": spec });
        FamilyService::from_view(&serde_json::from_value(object).unwrap(), ipv4)
    }

    #[test]
    fn family_selects_addresses() {
        let spec = json!({ "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "externalIPs": ["192.0.2.1", "2001:db8::1"], "ports": [{ "port": 80 }] });
        let four = check(spec.clone(), true).unwrap();
        assert_eq!((four.cluster_ip.to_string(), four.external_ips.len()), ("10.96.0.1".into(), 1));
        assert_eq!(check(spec, false).unwrap().cluster_ip.to_string(), "fd00::1");
        assert!(check(json!({ "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"] }), false).is_none());
    }

    #[test]
    fn headless_and_external_name_are_not_proxied() {
        assert!(check(json!({ "clusterIP": "None", "clusterIPs": ["None"] }), true).is_none());
        assert!(check(json!({ "type": "ExternalName", "externalName": "x" }), true).is_none());
    }

    #[test]
    fn source_ranges_do_not_overlap() {
        let ranges = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).into()).collect();
            source_ranges(&texts, true).iter().map(IpCidr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            ranges(&[" 10.0.0.0/8", "10.1.0.0/16", "192.168.1.7/24", "fd00::/8"]),
            ["10.0.0.0/8", "192.168.1.0/24"]
        );
        assert!(ranges(&["10.0.0.0/8", "0.0.0.0/0"]).is_empty());
    }
}
