//! The plan of a service: where its traffic comes in, and which endpoints it goes to. Elements of sets and maps are
//! derived from it, so that a change is the difference of two plans.

use std::net::IpAddr;

use sys::net::IpCidr;

use super::{
    endpoints::{EndpointAddress, UsableEndpoints},
    family_service::{FamilyService, FamilyServicePort},
};
use crate::service_protocol::ServiceProtocol;

/// A group of endpoints that connections are spread over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// The position is the index that a random number selects.
    pub endpoints: Vec<EndpointAddress>,
    /// The timeout of client IP affinity in seconds.
    pub affinity: Option<u32>,
}

/// A place where traffic for a service comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Frontend {
    /// An address and port.
    Address(IpAddr, ServiceProtocol, u16),
    /// A port of the node's addresses.
    NodePort(ServiceProtocol, u16),
}

/// Which of a port's backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendScope {
    Cluster,
    Local,
}

/// Action on traffic at a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontendAction {
    /// To a backend; masqueraded unless it comes from a pod.
    Internal(BackendScope),
    /// To the cluster's endpoints, masqueraded.
    External,
    /// Of pods and this node: to the cluster's endpoints. Of others: to this node's, with the source kept.
    ExternalLocal,
    /// Refused: no endpoint exists.
    Reject,
    /// Dropped: another node has endpoints.
    Drop,
}

/// The plan of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPlan {
    pub name: String,
    pub protocol: ServiceProtocol,
    pub cluster: Backend,
    pub local: Backend,
    pub frontends: Vec<(Frontend, FrontendAction)>,
    /// Endpoints on this node, which may connect to themselves through the service.
    pub hairpin: Vec<EndpointAddress>,
    /// Frontends with the sources that may use them.
    pub firewall: Vec<(Frontend, Vec<IpCidr>)>,
    /// The number of ready endpoints on this node.
    pub local_ready: usize,
}

/// The plan of a service in one IP family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePlan {
    pub cluster_ip: IpAddr,
    pub ports: Vec<PortPlan>,
}

impl ServicePlan {
    /// Plans a service. Positions of endpoints are kept from `previous` where they can be.
    pub fn new(
        service: &FamilyService,
        endpoints_of: impl Fn(&FamilyServicePort) -> UsableEndpoints,
        previous: Option<&ServicePlan>,
    ) -> Self {
        let plan = |port: &FamilyServicePort| {
            let earlier = previous.and_then(|plan| {
                plan.ports.iter().find(|earlier| earlier.name == port.name && earlier.protocol == port.protocol)
            });
            plan_port(service, port, &endpoints_of(port), earlier)
        };
        Self { cluster_ip: service.cluster_ip, ports: service.ports.iter().map(plan).collect() }
    }

    /// The number of ready endpoints on this node, which health checks report.
    pub fn local_ready(&self) -> usize {
        self.ports.iter().map(|port| port.local_ready).max().unwrap_or_default()
    }

    /// Whether connections of UDP or SCTP may be left over after a change.
    pub fn has_stateless_protocol(&self) -> bool {
        self.ports.iter().any(|port| port.protocol != ServiceProtocol::Tcp)
    }
}

fn plan_port(
    service: &FamilyService,
    port: &FamilyServicePort,
    usable: &UsableEndpoints,
    earlier: Option<&PortPlan>,
) -> PortPlan {
    let backend = |endpoints: &[EndpointAddress], earlier: Option<&Backend>| Backend {
        endpoints: keep_positions(earlier.map_or(&[], |earlier| &earlier.endpoints), endpoints),
        affinity: service.affinity,
    };
    let cluster = backend(&usable.cluster, earlier.map(|earlier| &earlier.cluster));
    let local = backend(&usable.local, earlier.map(|earlier| &earlier.local));
    let address = |ip: &IpAddr| Frontend::Address(*ip, port.protocol, port.port);
    let internal = match service.internal_local {
        true => choose_action(usable.any, !usable.local.is_empty(), FrontendAction::Internal(BackendScope::Local)),
        false => choose_action(usable.any, true, FrontendAction::Internal(BackendScope::Cluster)),
    };
    let external = match service.external_local {
        true => choose_action(usable.any, true, FrontendAction::ExternalLocal),
        false => choose_action(usable.any, true, FrontendAction::External),
    };
    let outside = service.external_ips.iter().chain(&service.load_balancer_ips).map(address);
    let outside = outside.chain(port.node_port.map(|port_number| Frontend::NodePort(port.protocol, port_number)));
    let mut frontends = vec![(address(&service.cluster_ip), internal)];
    for frontend in outside {
        if !frontends.iter().any(|(known, _)| *known == frontend) {
            frontends.push((frontend, external));
        }
    }
    let restricted = service.load_balancer_ips.iter().filter(|_| !service.source_ranges.is_empty());
    PortPlan {
        name: port.name.clone(),
        protocol: port.protocol,
        cluster,
        local,
        frontends,
        hairpin: usable.on_this_node.clone(),
        firewall: restricted.map(|ip| (address(ip), service.source_ranges.clone())).collect(),
        local_ready: usable.local_ready,
    }
}

fn choose_action(any: bool, usable: bool, action: FrontendAction) -> FrontendAction {
    match (any, usable) {
        (false, _) => FrontendAction::Reject,
        (true, false) => FrontendAction::Drop,
        (true, true) => action,
    }
}

/// Orders `wanted` so that endpoints stay where they were: a removed one's place is taken by a new one or by the last.
fn keep_positions(earlier: &[EndpointAddress], wanted: &[EndpointAddress]) -> Vec<EndpointAddress> {
    let is_kept = |endpoint: &EndpointAddress| wanted.binary_search(endpoint).is_ok();
    let known: std::collections::HashSet<&EndpointAddress> = earlier.iter().collect();
    let mut fresh = wanted.iter().filter(|endpoint| !known.contains(endpoint));
    let mut places: Vec<Option<EndpointAddress>> = earlier
        .iter()
        .map(|endpoint| if is_kept(endpoint) { Some(*endpoint) } else { fresh.next().copied() })
        .collect();
    places.extend(fresh.map(|endpoint| Some(*endpoint)));
    let mut ordered = Vec::with_capacity(wanted.len());
    let mut next = 0;
    while next < places.len() {
        match places[next] {
            Some(endpoint) => {
                ordered.push(endpoint);
                next += 1;
            }
            None => match places.pop() {
                // The hole itself was last.
                _ if next >= places.len() => {}
                Some(last) => places[next] = last,
                None => {}
            },
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_keep_their_positions() {
        let addresses = |numbers: &[u8]| -> Vec<EndpointAddress> {
            numbers.iter().map(|last| (IpAddr::from([10, 0, 0, *last]), 80)).collect()
        };
        let check = |earlier: &[u8], wanted: &[u8], expected: &[u8]| {
            let mut sorted = addresses(wanted);
            sorted.sort_unstable();
            assert_eq!(keep_positions(&addresses(earlier), &sorted), addresses(expected), "{earlier:?} {wanted:?}");
        };
        check(&[], &[1, 2], &[1, 2]);
        check(&[1, 2, 3], &[1, 2, 3, 4], &[1, 2, 3, 4]);
        check(&[1, 2, 3], &[2, 3], &[3, 2]);
        check(&[1, 2, 3], &[1, 3, 9], &[1, 9, 3]);
        check(&[1, 2, 3], &[1], &[1]);
        check(&[1, 2, 3], &[], &[]);
        check(&[5, 1], &[7], &[7]);
    }
}
