//! Compilation of NetworkPolicies, for the pods of this node, to a ruleset.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use api::selector::LabelSelector;
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector as SelectorObject, util::intstr::IntOrString},
};
use serde::Serialize;
use sys::{
    net::{IpCidr, octets},
    nftables::{DataType, Expression, SetElement, SetKind, SetSpec, Verdict},
};

use super::ruleset::{EGRESS_MAP, GUARDED_SET, INGRESS_MAP, KNOWN_SET, PolicyRuleset, PolicySet, SELF_SET};
use crate::{
    packet_fields::PacketFields,
    ranges::{merge_ranges, range_elements},
    service_protocol::ServiceProtocol,
    views::PodView,
};

/// The objects that policies are made of.
pub(super) struct PolicyObjects {
    pub pods: Vec<Arc<PodView>>,
    pub namespaces: Vec<Arc<Namespace>>,
    pub policies: Vec<Arc<NetworkPolicy>>,
}

/// Compiles for one node.
pub(super) struct PolicyCompiler {
    pub node_name: String,
    /// The range of this node's pods.
    pub node_ranges: Vec<IpCidr>,
    pub names: RandomState,
}

/// The direction of traffic, seen from the pod that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

/// One rule of a policy, the same for both directions.
struct PolicyRule<'a> {
    peers: Option<&'a Vec<NetworkPolicyPeer>>,
    ports: Option<&'a Vec<NetworkPolicyPort>>,
}

/// State of a compilation: one family, all objects, and the ruleset so far.
struct Compilation<'a> {
    fields: PacketFields,
    objects: &'a PolicyObjects,
    names: &'a RandomState,
    ruleset: PolicyRuleset,
}

impl PolicyCompiler {
    /// Compiles all policies for one IP family.
    pub fn compile(&self, objects: &PolicyObjects, is_ipv4: bool) -> PolicyRuleset {
        let fields = PacketFields { is_ipv4 };
        let mut work = Compilation { fields, objects, names: &self.names, ruleset: PolicyRuleset::new(fields) };
        let is_here =
            |pod: &&Arc<PodView>| pod.is_connected() && pod.spec.node_name.as_deref() == Some(self.node_name.as_str());
        for pod in objects.pods.iter().filter(is_here) {
            for ip in pod.addresses(is_ipv4) {
                work.ruleset.add_element(KNOWN_SET, SetElement::key(octets(ip)));
                work.ruleset.add_element(SELF_SET, SetElement::key([octets(ip), octets(ip)].concat()));
                work.isolate(pod, ip, Direction::Ingress);
                work.isolate(pod, ip, Direction::Egress);
            }
        }
        if !objects.policies.is_empty() {
            for element in range_elements(&self.node_ranges, is_ipv4) {
                work.ruleset.add_element(GUARDED_SET, element);
            }
        }
        work.ruleset
    }
}

impl Compilation<'_> {
    /// Leads a pod to the chain of its policies, if it has any in this direction.
    fn isolate(&mut self, pod: &PodView, ip: IpAddr, direction: Direction) {
        let objects = self.objects;
        let namespace = pod.metadata.namespace.as_deref();
        let applies = |policy: &&Arc<NetworkPolicy>| {
            policy.metadata.namespace.as_deref() == namespace
                && has_direction(policy, direction)
                && policy.spec.as_ref().is_some_and(|spec| selects(spec.pod_selector.as_ref(), pod))
        };
        let policies: Vec<_> = objects.policies.iter().filter(applies).collect();
        if policies.is_empty() {
            return;
        }
        let mut chains: Vec<String> = policies.iter().map(|policy| self.policy_chain(policy, direction)).collect();
        chains.sort_unstable();
        chains.dedup();
        let (prefix, map) = match direction {
            Direction::Ingress => ("pods-in", INGRESS_MAP),
            Direction::Egress => ("pods-out", EGRESS_MAP),
        };
        let name = self.name(prefix, &chains);
        self.ruleset.pod_chains.entry(name.clone()).or_insert_with(|| {
            let jumps = chains.into_iter().map(|chain| vec![Expression::Verdict(Verdict::Jump(chain))]);
            jumps.chain([vec![Expression::Verdict(Verdict::Drop)]]).collect()
        });
        self.ruleset.add_element(map, SetElement::verdict(octets(ip), Verdict::Goto(name)));
    }

    /// The chain of a policy in one direction: it accepts what the policy allows.
    fn policy_chain(&mut self, policy: &NetworkPolicy, direction: Direction) -> String {
        let Some(spec) = &policy.spec else { return String::new() };
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let (prefix, rules): (_, Vec<PolicyRule<'_>>) = match direction {
            Direction::Ingress => {
                let rules = spec.ingress.iter().flatten();
                (
                    "policy-in",
                    rules.map(|rule| PolicyRule { peers: rule.from.as_ref(), ports: rule.ports.as_ref() }).collect(),
                )
            }
            Direction::Egress => {
                let rules = spec.egress.iter().flatten();
                (
                    "policy-out",
                    rules.map(|rule| PolicyRule { peers: rule.to.as_ref(), ports: rule.ports.as_ref() }).collect(),
                )
            }
        };
        // Named ports of ingress are those of the pods that the policy selects.
        let targets = (direction == Direction::Ingress).then_some(&spec.pod_selector);
        let contents: Vec<_> = rules.iter().map(|rule| (rule.peers, rule.ports)).collect();
        let name = self.name(prefix, &(namespace, contents, targets));
        if !self.ruleset.policy_chains.contains_key(&name) {
            let mut compiled = Vec::new();
            for rule in &rules {
                let peers = self.peer_matches(rule.peers, namespace, direction);
                let ports = self.port_matches(rule, (namespace, spec.pod_selector.as_ref()), direction);
                for peer in &peers {
                    for port in &ports {
                        let accept = vec![Expression::Verdict(Verdict::Accept)];
                        compiled.push([peer.clone(), port.clone(), accept].concat());
                    }
                }
            }
            self.ruleset.policy_chains.insert(name.clone(), compiled);
        }
        name
    }

    /// Alternatives that match the other side; an absent or empty list matches all.
    fn peer_matches(
        &mut self,
        peers: Option<&Vec<NetworkPolicyPeer>>,
        namespace: &str,
        direction: Direction,
    ) -> Vec<Vec<Expression>> {
        let Some(peers) = peers.filter(|peers| !peers.is_empty()) else { return vec![Vec::new()] };
        let load = match direction {
            Direction::Ingress => self.fields.load_source(0),
            Direction::Egress => self.fields.load_destination(0),
        };
        let in_set = |set: String, inverted| Expression::InSet { set, from: 0, inverted };
        let mut matches = Vec::new();
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                if let Some((inside, outside)) = self.block_sets(block) {
                    let mut expressions = vec![load.clone(), in_set(inside, false)];
                    expressions.extend(outside.map(|set| in_set(set, true)));
                    matches.push(expressions);
                }
                continue;
            }
            matches.push(vec![load.clone(), in_set(self.peer_set(peer, namespace), false)]);
        }
        matches
    }

    /// The set of the pods that a peer selects.
    fn peer_set(&mut self, peer: &NetworkPolicyPeer, namespace: &str) -> String {
        let scope = peer.namespace_selector.is_none().then_some(namespace);
        let name = self.name("peers", &(scope, &peer.namespace_selector, &peer.pod_selector));
        if !self.ruleset.sets.contains_key(&name) {
            let is_ipv4 = self.fields.is_ipv4;
            let pods = self.peer_pods(peer, namespace);
            let ips = pods.iter().flat_map(|pod| pod.addresses(is_ipv4)).map(|ip| SetElement::key(octets(ip)));
            let elements = ips.collect();
            let spec = SetSpec::new(&name, &[self.fields.address_type()], SetKind::Set);
            self.ruleset.sets.insert(name.clone(), PolicySet { spec, elements });
        }
        name
    }

    fn peer_pods(&self, peer: &NetworkPolicyPeer, namespace: &str) -> Vec<Arc<PodView>> {
        let selector = peer.namespace_selector.as_ref();
        let in_namespace = |pod: &PodView| {
            let name = pod.metadata.namespace.as_deref().unwrap_or_default();
            match selector {
                None => name == namespace,
                Some(selector) => {
                    let found = self.objects.namespaces.iter().find(|one| one.metadata.name.as_deref() == Some(name));
                    found.is_some_and(|found| matches_labels(Some(selector), found.metadata.labels.as_ref()))
                }
            }
        };
        let pods = self.objects.pods.iter().filter(|pod| pod.is_connected());
        pods.filter(|pod| selects(peer.pod_selector.as_ref(), pod) && in_namespace(pod)).cloned().collect()
    }

    /// The sets of an address block and of its exceptions; `None` for the other IP family.
    fn block_sets(&mut self, block: &IPBlock) -> Option<(String, Option<String>)> {
        let range: IpCidr = block.cidr.parse().ok()?;
        if range.is_ipv4() != self.fields.is_ipv4 {
            return None;
        }
        let except: Vec<IpCidr> = block.except.iter().flatten().filter_map(|text| text.parse().ok()).collect();
        let inside = self.range_set(vec![range]);
        Some((inside, (!except.is_empty()).then(|| self.range_set(except))))
    }

    fn range_set(&mut self, ranges: Vec<IpCidr>) -> String {
        let ranges = merge_ranges(ranges.iter().map(IpCidr::network).collect());
        let texts: Vec<String> = ranges.iter().map(IpCidr::to_string).collect();
        let name = self.name("ranges", &texts);
        let elements = range_elements(&ranges, self.fields.is_ipv4).into_iter().collect();
        let spec = SetSpec::new(&name, &[self.fields.address_type()], SetKind::Set).with_intervals();
        self.ruleset.sets.entry(name.clone()).or_insert(PolicySet { spec, elements });
        name
    }

    /// Alternatives that match the port; an absent or empty list matches all.
    fn port_matches(
        &mut self,
        rule: &PolicyRule<'_>,
        target: (&str, Option<&SelectorObject>),
        direction: Direction,
    ) -> Vec<Vec<Expression>> {
        let Some(ports) = rule.ports.filter(|ports| !ports.is_empty()) else { return vec![Vec::new()] };
        let mut matches = Vec::new();
        let numbers = numeric_ports(ports);
        if !numbers.is_empty() {
            let name = self.name("ports", &numbers);
            let elements = numbers.iter().map(|(protocol, first, last)| {
                SetElement::concatenated_range(port_key(*protocol, *first), port_key(*protocol, *last))
            });
            let spec = SetSpec::new(&name, &[DataType::Protocol, DataType::Port], SetKind::Set).with_intervals();
            let set = PolicySet { spec, elements: elements.collect() };
            self.ruleset.sets.entry(name.clone()).or_insert(set);
            let lookup = Expression::InSet { set: name, from: 0, inverted: false };
            matches.push([self.fields.load_port(0), vec![lookup]].concat());
        }
        let named: Vec<(&str, ServiceProtocol)> = ports
            .iter()
            .filter_map(|port| match &port.port {
                Some(IntOrString::String(name)) => {
                    Some((name.as_str(), ServiceProtocol::parse(port.protocol.as_deref())?))
                }
                _ => None,
            })
            .collect();
        if !named.is_empty() {
            let pods = self.named_port_pods(rule, target, direction);
            matches.push(self.named_port_match(&named, &pods, (rule, target, direction)));
        }
        matches
    }

    /// The pods whose container ports a named port means: the selected ones for ingress, the peers for egress.
    fn named_port_pods(
        &self,
        rule: &PolicyRule<'_>,
        (namespace, selector): (&str, Option<&SelectorObject>),
        direction: Direction,
    ) -> Vec<Arc<PodView>> {
        if direction == Direction::Ingress {
            let peer =
                NetworkPolicyPeer { pod_selector: Some(selector.cloned().unwrap_or_default()), ..Default::default() };
            return self.peer_pods(&peer, namespace);
        }
        match rule.peers.filter(|peers| !peers.is_empty()) {
            None => self.objects.pods.iter().filter(|pod| pod.is_connected()).cloned().collect(),
            Some(peers) => {
                let selecting = peers.iter().filter(|peer| peer.ip_block.is_none());
                selecting.flat_map(|peer| self.peer_pods(peer, namespace)).collect()
            }
        }
    }

    fn named_port_match(
        &mut self,
        named: &[(&str, ServiceProtocol)],
        pods: &[Arc<PodView>],
        scope: (&PolicyRule<'_>, (&str, Option<&SelectorObject>), Direction),
    ) -> Vec<Expression> {
        let (rule, target, direction) = scope;
        let mut elements = BTreeSet::new();
        for pod in pods {
            for (name, protocol) in named {
                let ports = pod.named_ports(name).filter(|(of, _)| ServiceProtocol::parse(*of) == Some(*protocol));
                let numbers: Vec<u16> = ports.map(|(_, number)| number).collect();
                for ip in pod.addresses(self.fields.is_ipv4) {
                    let keys = numbers.iter().map(|number| [octets(ip), port_key(*protocol, *number)].concat());
                    elements.extend(keys.map(SetElement::key));
                }
            }
        }
        let peers = (direction == Direction::Egress).then_some(rule.peers);
        let name = self.name("named-ports", &(rule.ports, target, peers));
        let key = [self.fields.address_type(), DataType::Protocol, DataType::Port];
        let spec = SetSpec::new(&name, &key, SetKind::Set);
        self.ruleset.sets.entry(name.clone()).or_insert(PolicySet { spec, elements });
        let lookup = Expression::InSet { set: name, from: 0, inverted: false };
        [self.fields.load_frontend(0), vec![lookup]].concat()
    }

    /// A name for what `content` describes.
    fn name(&self, prefix: &str, content: &impl Serialize) -> String {
        let text = serde_json::to_string(content).unwrap_or_default();
        format!("{prefix}-{:016x}", self.names.hash_one(text))
    }
}

/// The numbers of ports: protocol, first and last; merged where they touch, because sets refuse overlaps.
fn numeric_ports(ports: &[NetworkPolicyPort]) -> Vec<(ServiceProtocol, u16, u16)> {
    let mut by_protocol: BTreeMap<ServiceProtocol, Vec<(u16, u16)>> = BTreeMap::new();
    for port in ports {
        let Some(protocol) = ServiceProtocol::parse(port.protocol.as_deref()) else { continue };
        let range = match &port.port {
            None => Some((0, u16::MAX)),
            Some(IntOrString::Int(first)) => {
                let last = port.end_port.unwrap_or(*first);
                u16::try_from(*first).ok().zip(u16::try_from(last).ok()).filter(|(first, last)| first <= last)
            }
            Some(IntOrString::String(_)) => None,
        };
        by_protocol.entry(protocol).or_default().extend(range);
    }
    let mut merged: Vec<(ServiceProtocol, u16, u16)> = Vec::new();
    for (protocol, mut ranges) in by_protocol {
        ranges.sort_unstable();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((same, _, end)) if *same == protocol && u32::from(first) <= u32::from(*end) + 1 => {
                    *end = last.max(*end);
                }
                _ => merged.push((protocol, first, last)),
            }
        }
    }
    merged
}

fn port_key(protocol: ServiceProtocol, port: u16) -> Vec<u8> {
    let mut key = vec![protocol.number(), 0, 0, 0];
    key.extend(port.to_be_bytes());
    key.extend([0, 0]);
    key
}

/// Whether a policy is about a direction. Without types it is about ingress, and about egress if it has such rules.
fn has_direction(policy: &NetworkPolicy, direction: Direction) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let name = if direction == Direction::Ingress { "Ingress" } else { "Egress" };
    match spec.policy_types.as_ref().filter(|types| !types.is_empty()) {
        Some(types) => types.iter().any(|kind| kind == name),
        None => direction == Direction::Ingress || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}

fn selects(selector: Option<&SelectorObject>, pod: &PodView) -> bool {
    matches_labels(selector, pod.metadata.labels.as_ref())
}

/// Whether a selector matches labels; an absent one matches all, an invalid one none.
fn matches_labels(selector: Option<&SelectorObject>, labels: Option<&BTreeMap<String, String>>) -> bool {
    let Some(selector) = selector else { return true };
    let object = serde_json::to_value(selector).unwrap_or_default();
    let Ok(selector) = LabelSelector::from_object(&object) else { return false };
    selector.matches_by(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}
