//! The endpoints of a service port: merged from slices, then chosen by readiness, traffic policy and topology.

use std::{collections::BTreeMap, net::IpAddr};

use super::family_service::{FamilyService, FamilyServicePort};
use crate::{
    service_protocol::ServiceProtocol,
    views::{EndpointSliceView, EndpointView},
};

/// The place of this node, which endpoints are compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTopology {
    pub node_name: String,
    pub zone: String,
}

/// An address and port of an endpoint.
pub(crate) type EndpointAddress = (IpAddr, u16);

/// Inputs of the choice of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EndpointState {
    is_local: bool,
    is_ready: bool,
    is_serving: bool,
    is_terminating: bool,
    /// `None` without hints; otherwise whether one names this zone.
    zone_hint: Option<bool>,
    /// `None` without hints; otherwise whether one names this node.
    node_hint: Option<bool>,
}

impl EndpointState {
    fn from_view(endpoint: &EndpointView, topology: &NodeTopology) -> Self {
        let hint = |names: Vec<&str>, own: &str| (!names.is_empty()).then(|| names.contains(&own));
        let hints = endpoint.hints.as_ref();
        let zones =
            hints.map_or_else(Vec::new, |hints| hints.for_zones.iter().map(|zone| zone.name.as_str()).collect());
        let nodes =
            hints.map_or_else(Vec::new, |hints| hints.for_nodes.iter().map(|node| node.name.as_str()).collect());
        Self {
            is_local: endpoint.node_name.as_deref() == Some(topology.node_name.as_str()),
            is_ready: endpoint.is_ready(),
            is_serving: endpoint.conditions.serving.unwrap_or(true),
            is_terminating: endpoint.conditions.terminating.unwrap_or(false),
            zone_hint: hint(zones, &topology.zone),
            node_hint: hint(nodes, &topology.node_name),
        }
    }

    /// Whether the endpoint still answers although it is about to end.
    fn is_fallback(&self) -> bool {
        self.is_serving && self.is_terminating
    }
}

/// The usable endpoints of a service port on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsableEndpoints {
    /// For the traffic policy `Cluster`, by topology.
    pub cluster: Vec<EndpointAddress>,
    /// For the traffic policy `Local`.
    pub local: Vec<EndpointAddress>,
    /// Those of both that are on this node.
    pub on_this_node: Vec<EndpointAddress>,
    /// Whether any node has a usable endpoint.
    pub any: bool,
    /// The number of ready endpoints on this node.
    pub local_ready: usize,
}

/// The endpoints of one service port, by address.
pub(crate) struct PortEndpoints {
    endpoints: BTreeMap<EndpointAddress, EndpointState>,
}

impl PortEndpoints {
    /// Merges the slices of a service. An address in two slices counts once; one that does not end wins.
    pub fn merge(
        slices: &[impl AsRef<EndpointSliceView>],
        port: &FamilyServicePort,
        scope: (bool, &NodeTopology),
    ) -> Self {
        let (ipv4, topology) = scope;
        let mut endpoints = BTreeMap::new();
        for slice in slices.iter().map(AsRef::as_ref).filter(|slice| slice.is_ipv4() == ipv4) {
            let ports = slice.ports.iter().flatten().filter(|candidate| {
                candidate.name.as_deref().unwrap_or_default() == port.name
                    && ServiceProtocol::parse(candidate.protocol.as_deref()) == Some(port.protocol)
            });
            for number in ports.filter_map(|port| port.port) {
                for endpoint in slice.endpoints.iter().flatten() {
                    let address = endpoint.addresses.first().and_then(|text| text.parse::<IpAddr>().ok());
                    let Some(address) = address.filter(|address| address.is_ipv4() == ipv4) else { continue };
                    let state = EndpointState::from_view(endpoint, topology);
                    if !state.is_terminating || !endpoints.contains_key(&(address, number)) {
                        endpoints.insert((address, number), state);
                    }
                }
            }
        }
        Self { endpoints }
    }

    /// Chooses the usable endpoints. Without ready ones, those that end but still serve are used.
    pub fn choose(&self, service: &FamilyService, port: &FamilyServicePort) -> UsableEndpoints {
        let external = service.is_external(port);
        let uses_cluster = !service.internal_local || external;
        let uses_local = service.internal_local || (service.external_local && external);
        let cluster = if uses_cluster { self.choose_cluster() } else { Vec::new() };
        let local = if uses_local { self.choose_local() } else { Vec::new() };
        let is_local = |address: &&EndpointAddress| self.endpoints.get(*address).is_some_and(|state| state.is_local);
        let mut on_this_node: Vec<_> = cluster.iter().chain(&local).filter(is_local).copied().collect();
        on_this_node.sort_unstable();
        on_this_node.dedup();
        let any = if uses_local {
            self.endpoints.values().any(|state| state.is_ready || state.is_fallback())
        } else {
            !cluster.is_empty()
        };
        let local_ready = self.endpoints.values().filter(|state| state.is_local && state.is_ready).count();
        UsableEndpoints { cluster, local, on_this_node, any, local_ready }
    }

    fn choose_cluster(&self) -> Vec<EndpointAddress> {
        let topology = self.topology_filter();
        let ready = self.select(|state| state.is_ready && topology(state));
        if ready.is_empty() { self.select(EndpointState::is_fallback) } else { ready }
    }

    fn choose_local(&self) -> Vec<EndpointAddress> {
        let ready = self.select(|state| state.is_local && state.is_ready);
        if ready.is_empty() { self.select(|state| state.is_local && state.is_fallback()) } else { ready }
    }

    /// The filter of hints: by node if all ready endpoints have such hints and one is for this node; then by zone; else
    /// none.
    fn topology_filter(&self) -> fn(&EndpointState) -> bool {
        let ready = || self.endpoints.values().filter(|state| state.is_ready);
        let applies = |hint: fn(&EndpointState) -> Option<bool>| {
            ready().all(|state| hint(state).is_some()) && ready().any(|state| hint(state) == Some(true))
        };
        if applies(|state| state.node_hint) {
            |state| state.node_hint == Some(true)
        } else if applies(|state| state.zone_hint) {
            |state| state.zone_hint == Some(true)
        } else {
            |_| true
        }
    }

    fn select(&self, wanted: impl Fn(&EndpointState) -> bool) -> Vec<EndpointAddress> {
        self.endpoints.iter().filter(|(_, state)| wanted(state)).map(|(address, _)| *address).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::views::ServiceView;

    /// Chooses among endpoints on port 80 for a service with these spec fields, as seen from node `n1` in zone `z1`.
    fn check(spec: Value, endpoints: Value) -> UsableEndpoints {
        let mut service =
            json!({ "metadata": { "name": "s" }, "spec": { "clusterIP": "10.96.0.1", "ports": [{ "port": 80 }] } });
        for (name, value) in spec.as_object().unwrap() {
            service["spec"][name] = value.clone();
        }
        let slice = json!({ "metadata": { "name": "s-1" }, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }] });
        let service: ServiceView = serde_json::from_value(service).unwrap();
        let service = FamilyService::from_view(&service, true).unwrap();
        let slices = [Arc::new(serde_json::from_value::<EndpointSliceView>(slice).unwrap())];
        let topology = NodeTopology { node_name: "n1".into(), zone: "z1".into() };
        PortEndpoints::merge(&slices, &service.ports[0], (true, &topology)).choose(&service, &service.ports[0])
    }

    fn last_octets(addresses: &[EndpointAddress]) -> Vec<u8> {
        addresses.iter().map(|(ip, _)| sys::net::octets(*ip)[3]).collect()
    }

    fn endpoint(last: u8, node: &str, conditions: Value) -> Value {
        json!({ "addresses": [format!("10.42.0.{last}")], "nodeName": node, "conditions": conditions })
    }

    #[test]
    fn ready_endpoints_come_before_terminating_ones() {
        let ready = endpoint(1, "n1", json!({ "ready": true }));
        let ending = endpoint(2, "n1", json!({ "ready": false, "serving": true, "terminating": true }));
        let dead = endpoint(3, "n2", json!({ "ready": false, "serving": false }));
        let both = check(json!({}), json!([ready, ending, dead]));
        assert_eq!((last_octets(&both.cluster), both.any, both.local_ready), (vec![1], true, 1));
        let fallback = check(json!({}), json!([ending, dead]));
        assert_eq!((last_octets(&fallback.cluster), fallback.any), (vec![2], true));
        assert!(!check(json!({}), json!([dead])).any);
    }

    #[test]
    fn local_policy_uses_this_node() {
        let endpoints = json!([endpoint(1, "n1", json!({})), endpoint(2, "n2", json!({}))]);
        let internal = check(json!({ "internalTrafficPolicy": "Local" }), endpoints.clone());
        assert_eq!((last_octets(&internal.local), internal.cluster.len()), (vec![1], 0));
        let external = check(json!({ "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"] }), endpoints);
        assert_eq!((last_octets(&external.local), last_octets(&external.cluster)), (vec![1], vec![1, 2]));
        let elsewhere = check(json!({ "internalTrafficPolicy": "Local" }), json!([endpoint(2, "n2", json!({}))]));
        assert!(elsewhere.any && elsewhere.local.is_empty());
    }

    #[test]
    fn hints_apply_if_all_have_them_and_one_is_ours() {
        let hinted = |last, zone: &str| {
            let mut hinted = endpoint(last, "n2", json!({}));
            hinted["hints"] = json!({ "forZones": [{ "name": zone }] });
            hinted
        };
        let ours = check(json!({}), json!([hinted(1, "z1"), hinted(2, "z2")]));
        assert_eq!(last_octets(&ours.cluster), [1]);
        let partial = check(json!({}), json!([hinted(1, "z1"), endpoint(2, "n2", json!({}))]));
        assert_eq!(last_octets(&partial.cluster), [1, 2]);
        let foreign = check(json!({}), json!([hinted(1, "z3"), hinted(2, "z2")]));
        assert_eq!(last_octets(&foreign.cluster), [1, 2]);
    }
}
