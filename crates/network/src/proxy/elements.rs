//! The elements of sets and maps that a plan is made of, and the chains that they refer to.

use std::net::IpAddr;

use sys::{
    net::octets,
    nftables::{SetElement, Verdict},
};

use super::plan::{Backend, BackendScope, Frontend, FrontendAction, PortPlan, ServicePlan};
use crate::service_protocol::ServiceProtocol;

/// The sets and maps of the table. Each map by address has a twin for node ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum SetName {
    /// Addresses of services.
    ClusterIps,
    /// Frontend → chain.
    ServiceIps,
    ServiceNodePorts,
    /// Frontend and index → endpoint.
    Endpoints,
    NodePortEndpoints,
    /// Frontend → chain for traffic from outside that stays on this node.
    LocalIps,
    LocalNodePorts,
    /// Frontend → chain for pods and this node, whatever the external policy.
    BypassIps,
    BypassNodePorts,
    /// Frontend and index → endpoint of that.
    BypassEndpoints,
    BypassNodePortEndpoints,
    /// Client and frontend → endpoint.
    Affinity,
    NodePortAffinity,
    /// Frontend and endpoint, for frontends with affinity.
    AffinityEndpoints,
    NodePortAffinityEndpoints,
    /// Frontend → reject or drop.
    NoEndpointIps,
    NoEndpointNodePorts,
    /// Frontends with source ranges.
    FirewallIps,
    /// Frontend and source.
    FirewallRanges,
    /// Endpoints of this node that may connect to themselves.
    Hairpin,
    /// Addresses on which node ports are served.
    NodePortAddresses,
    /// Ranges of pods.
    ClusterCidrs,
    /// Ranges of services.
    ServiceCidrs,
}

impl SetName {
    /// The name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterIps => "cluster-ips",
            Self::ServiceIps => "service-ips",
            Self::ServiceNodePorts => "service-nodeports",
            Self::Endpoints => "service-endpoints",
            Self::NodePortEndpoints => "nodeport-endpoints",
            Self::LocalIps => "local-ips",
            Self::LocalNodePorts => "local-nodeports",
            Self::BypassIps => "bypass-ips",
            Self::BypassNodePorts => "bypass-nodeports",
            Self::BypassEndpoints => "bypass-endpoints",
            Self::BypassNodePortEndpoints => "bypass-nodeport-endpoints",
            Self::Affinity => "affinity",
            Self::NodePortAffinity => "nodeport-affinity",
            Self::AffinityEndpoints => "affinity-endpoints",
            Self::NodePortAffinityEndpoints => "nodeport-affinity-endpoints",
            Self::NoEndpointIps => "no-endpoint-services",
            Self::NoEndpointNodePorts => "no-endpoint-nodeports",
            Self::FirewallIps => "firewall-ips",
            Self::FirewallRanges => "firewall-ranges",
            Self::Hairpin => "hairpin-connections",
            Self::NodePortAddresses => "nodeport-ips",
            Self::ClusterCidrs => "cluster-cidrs",
            Self::ServiceCidrs => "service-cidrs",
        }
    }
}

/// Chains with fixed names.
pub(crate) const REJECT_CHAIN: &str = "reject-chain";
pub(crate) const EXTERNAL_LOCAL_CHAIN: &str = "external-local";
pub(crate) const EXTERNAL_LOCAL_NODE_PORT_CHAIN: &str = "external-local-nodeport";

/// Whether a chain masquerades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Masquerade {
    Never,
    /// Unless the source is a pod.
    Outside,
    Always,
}

/// A chain that chooses an endpoint at random. Services with the same parameters share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EndpointChain {
    /// The map of endpoints.
    pub map: SetName,
    pub masquerade: Masquerade,
    pub endpoints: u32,
    /// The affinity timeout in seconds.
    pub affinity: Option<u32>,
}

impl EndpointChain {
    /// The chain's name.
    pub fn name(&self) -> String {
        let masquerade = match self.masquerade {
            Masquerade::Never => "keep",
            Masquerade::Outside => "masq-outside",
            Masquerade::Always => "masq",
        };
        let affinity = self.affinity.map(|seconds| format!("-sticky-{seconds}")).unwrap_or_default();
        format!("{}-{masquerade}-{}{affinity}", self.map.name(), self.endpoints)
    }

    /// Whether frontends are addresses and not node ports.
    pub fn is_by_address(&self) -> bool {
        matches!(self.map, SetName::Endpoints | SetName::BypassEndpoints)
    }
}

/// An element and its set.
pub(crate) type PlacedElement = (SetName, SetElement);

/// The elements of a plan, and the chains that they go to.
#[derive(Debug, Default)]
pub(crate) struct PlanElements {
    pub elements: Vec<PlacedElement>,
    pub chains: Vec<EndpointChain>,
}

impl PlanElements {
    /// Derives the elements. `is_claimed` tells which frontends are this service's: of two services with one external
    /// address and port, one has it.
    pub fn of_plan(plan: &ServicePlan, is_claimed: impl Fn(&Frontend) -> bool) -> Self {
        let mut out = Self::default();
        out.push(SetName::ClusterIps, SetElement::key(octets(plan.cluster_ip)));
        for port in &plan.ports {
            for (frontend, action) in port.frontends.iter().filter(|(frontend, _)| is_claimed(frontend)) {
                out.add_frontend(frontend, *action, port);
            }
            for (frontend, sources) in port.firewall.iter().filter(|(frontend, _)| is_claimed(frontend)) {
                let key = frontend_key(frontend);
                out.push(SetName::FirewallIps, SetElement::key(key.clone()));
                for source in sources {
                    let (first, last) = source.bounds();
                    let range = SetElement::concatenated_range([&key[..], &first].concat(), [&key[..], &last].concat());
                    out.push(SetName::FirewallRanges, range);
                }
            }
        }
        out
    }

    fn push(&mut self, set: SetName, element: SetElement) {
        self.elements.push((set, element));
    }

    fn add_frontend(&mut self, frontend: &Frontend, action: FrontendAction, port: &PortPlan) {
        let maps = FrontendMaps::from_frontend(frontend);
        let key = frontend_key(frontend);
        let goto = |chain: &str| Verdict::Goto(chain.to_owned());
        match action {
            FrontendAction::Reject => self.push(maps.no_endpoints, SetElement::verdict(key, goto(REJECT_CHAIN))),
            FrontendAction::Drop => self.push(maps.no_endpoints, SetElement::verdict(key, Verdict::Drop)),
            FrontendAction::Internal(scope) => {
                let backend = if scope == BackendScope::Cluster { &port.cluster } else { &port.local };
                self.route(&key, (maps.services, maps.endpoints), Masquerade::Outside, backend);
                self.add_affinity(&key, maps.affinity_endpoints, &[backend]);
            }
            FrontendAction::External => {
                self.route(&key, (maps.services, maps.endpoints), Masquerade::Always, &port.cluster);
                self.add_affinity(&key, maps.affinity_endpoints, &[&port.cluster]);
            }
            FrontendAction::ExternalLocal => {
                self.push(maps.services, SetElement::verdict(key.clone(), goto(maps.external_local)));
                self.route(&key, (maps.bypass, maps.bypass_endpoints), Masquerade::Never, &port.cluster);
                self.add_affinity(&key, maps.affinity_endpoints, &[&port.cluster, &port.local]);
                match port.local.endpoints.is_empty() {
                    true => self.push(maps.no_endpoints, SetElement::verdict(key, Verdict::Drop)),
                    false => self.route(&key, (maps.local, maps.endpoints), Masquerade::Never, &port.local),
                }
            }
        }
    }

    /// Sends a frontend's traffic to a backend.
    fn route(&mut self, key: &[u8], maps: (SetName, SetName), masquerade: Masquerade, backend: &Backend) {
        let (verdicts, map) = maps;
        let endpoints = backend.endpoints.len() as u32;
        let chain = EndpointChain { map, masquerade, endpoints, affinity: backend.affinity };
        self.push(verdicts, SetElement::verdict(key.to_vec(), Verdict::Goto(chain.name())));
        self.chains.push(chain);
        for (index, (ip, port)) in backend.endpoints.iter().enumerate() {
            let key = [key, &(index as u32).to_ne_bytes()].concat();
            self.push(map, SetElement::value(key, endpoint_bytes(*ip, *port)));
        }
    }

    fn add_affinity(&mut self, key: &[u8], set: SetName, backends: &[&Backend]) {
        let sticky = backends.iter().filter(|backend| backend.affinity.is_some());
        let mut endpoints: Vec<_> = sticky.flat_map(|backend| &backend.endpoints).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        for (ip, port) in endpoints {
            self.push(set, SetElement::key([key, &endpoint_bytes(*ip, *port)].concat()));
        }
    }
}

/// The maps for a kind of frontend.
struct FrontendMaps {
    services: SetName,
    endpoints: SetName,
    local: SetName,
    bypass: SetName,
    bypass_endpoints: SetName,
    affinity_endpoints: SetName,
    no_endpoints: SetName,
    external_local: &'static str,
}

impl FrontendMaps {
    fn from_frontend(frontend: &Frontend) -> Self {
        match frontend {
            Frontend::Address(..) => Self {
                services: SetName::ServiceIps,
                endpoints: SetName::Endpoints,
                local: SetName::LocalIps,
                bypass: SetName::BypassIps,
                bypass_endpoints: SetName::BypassEndpoints,
                affinity_endpoints: SetName::AffinityEndpoints,
                no_endpoints: SetName::NoEndpointIps,
                external_local: EXTERNAL_LOCAL_CHAIN,
            },
            Frontend::NodePort(..) => Self {
                services: SetName::ServiceNodePorts,
                endpoints: SetName::NodePortEndpoints,
                local: SetName::LocalNodePorts,
                bypass: SetName::BypassNodePorts,
                bypass_endpoints: SetName::BypassNodePortEndpoints,
                affinity_endpoints: SetName::NodePortAffinityEndpoints,
                no_endpoints: SetName::NoEndpointNodePorts,
                external_local: EXTERNAL_LOCAL_NODE_PORT_CHAIN,
            },
        }
    }
}

/// The key of a frontend: address if it has one, protocol, port, each padded to four bytes.
fn frontend_key(frontend: &Frontend) -> Vec<u8> {
    let (mut key, protocol, port) = match frontend {
        Frontend::Address(ip, protocol, port) => (octets(*ip), protocol, port),
        Frontend::NodePort(protocol, port) => (Vec::new(), protocol, port),
    };
    key.extend([protocol.number(), 0, 0, 0]);
    key.extend(port.to_be_bytes());
    key.extend([0, 0]);
    key
}

fn endpoint_bytes(ip: IpAddr, port: u16) -> Vec<u8> {
    let mut bytes = octets(ip);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// The element of the hairpin set for an endpoint.
pub(crate) fn hairpin_element(ip: IpAddr, protocol: ServiceProtocol, port: u16) -> SetElement {
    let frontend = frontend_key(&Frontend::Address(ip, protocol, port));
    SetElement::key([octets(ip), frontend].concat())
}
