//! The table of the service proxy: its sets, chains and rules. Only elements and endpoint chains differ between clusters.
//!
//! The path of a first packet: `services` looks up (address, protocol, port) in a verdict map and goes to a chain that is
//! shared by all services with the same number of endpoints. That chain draws a random index and translates the
//! destination to what a second map has for the frontend and the index. Two hash lookups, however many services there
//! are.

use sys::nftables::{
    BaseChain, ChainType, Compare, CtKey, DataType, DynamicSetUpdate, Expression, FibAddress, Hook, MetaKey, Register,
    Reject, SetKind, SetSpec, TableName, Transaction, Verdict,
};

use super::elements::{
    EXTERNAL_LOCAL_CHAIN, EXTERNAL_LOCAL_NODE_PORT_CHAIN, EndpointChain, Masquerade, REJECT_CHAIN, SetName,
};

use crate::packet_fields::PacketFields;

const SERVICES_CHAIN: &str = "services";
const ENDPOINTS_CHECK: &str = "service-endpoints-check";
const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
const FIREWALL_CHECK: &str = "firewall-check";
/// Before the translation of destinations.
const BEFORE_DNAT: i32 = -110;
const DNAT: i32 = -100;
const SNAT: i32 = 100;
const CT_STATE_NEW: u32 = 8;
const RTN_LOCAL: u32 = 2;

/// The table of one IP family.
#[derive(Clone, Debug)]
pub(crate) struct ProxyTable {
    pub table: TableName,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_mark: u32,
    pub masquerade_all: bool,
}

impl ProxyTable {
    fn fields(&self) -> PacketFields {
        PacketFields::of_family(self.table.family)
    }

    fn words(&self) -> Register {
        self.fields().words()
    }

    /// Declares sets, chains and rules in an empty table.
    pub fn create(&self, changes: &mut Transaction) {
        changes.replace_table(&self.table);
        for set in self.sets() {
            changes.add_set(&self.table, &set);
        }
        for chain in [
            SERVICES_CHAIN,
            ENDPOINTS_CHECK,
            CLUSTER_IPS_CHECK,
            FIREWALL_CHECK,
            REJECT_CHAIN,
            EXTERNAL_LOCAL_CHAIN,
            EXTERNAL_LOCAL_NODE_PORT_CHAIN,
        ] {
            changes.add_chain(&self.table, chain, None);
        }
        self.add_services_rules(changes);
        self.add_filter_rules(changes);
        self.add_external_local_rules(changes, EXTERNAL_LOCAL_CHAIN, true);
        self.add_external_local_rules(changes, EXTERNAL_LOCAL_NODE_PORT_CHAIN, false);
        self.add_base_chains(changes);
    }

    fn sets(&self) -> Vec<SetSpec> {
        let address = self.fields().address_type();
        let frontend = [address, DataType::Protocol, DataType::Port];
        let node_port = [DataType::Protocol, DataType::Port];
        let endpoint = [address, DataType::Port];
        let spec = |name: SetName, key: &[DataType], kind: SetKind| SetSpec::new(name.name(), key, kind);
        let to_endpoint = || SetKind::Map(endpoint.to_vec());
        let mut sets = vec![
            spec(SetName::ClusterIps, &[address], SetKind::Set),
            spec(SetName::FirewallIps, &frontend, SetKind::Set),
            spec(SetName::FirewallRanges, &[&frontend[..], &[address]].concat(), SetKind::Set).with_intervals(),
            spec(SetName::Hairpin, &[&[address][..], &frontend].concat(), SetKind::Set),
            spec(SetName::NodePortAddresses, &[address], SetKind::Set),
            spec(SetName::ClusterCidrs, &[address], SetKind::Set).with_intervals(),
            spec(SetName::ServiceCidrs, &[address], SetKind::Set).with_intervals(),
        ];
        let verdicts = [
            (SetName::ServiceIps, SetName::ServiceNodePorts),
            (SetName::LocalIps, SetName::LocalNodePorts),
            (SetName::BypassIps, SetName::BypassNodePorts),
            (SetName::NoEndpointIps, SetName::NoEndpointNodePorts),
        ];
        for (by_address, by_port) in verdicts {
            sets.push(spec(by_address, &frontend, SetKind::VerdictMap));
            sets.push(spec(by_port, &node_port, SetKind::VerdictMap));
        }
        let maps = [
            (SetName::Endpoints, SetName::NodePortEndpoints),
            (SetName::BypassEndpoints, SetName::BypassNodePortEndpoints),
        ];
        let index = [DataType::Mark];
        for (by_address, by_port) in maps {
            sets.push(spec(by_address, &[&frontend[..], &index].concat(), to_endpoint()));
            sets.push(spec(by_port, &[&node_port[..], &index].concat(), to_endpoint()));
        }
        let client = [address];
        let affinity = [(SetName::Affinity, &frontend[..]), (SetName::NodePortAffinity, &node_port)];
        for (name, key) in affinity {
            sets.push(spec(name, &[&client[..], key].concat(), to_endpoint()).with_dynamic_elements());
        }
        let known = [(SetName::AffinityEndpoints, &frontend[..]), (SetName::NodePortAffinityEndpoints, &node_port)];
        for (name, key) in known {
            sets.push(spec(name, &[key, &endpoint].concat(), SetKind::Set));
        }
        sets
    }

    fn add_base_chains(&self, changes: &mut Transaction) {
        let is_new = |chain: &str| {
            vec![
                Expression::Ct { key: CtKey::State, into: 0 },
                Expression::Bitwise { from: 0, into: 0, mask: CT_STATE_NEW.to_ne_bytes().to_vec(), xor: vec![0; 4] },
                Expression::Compare { from: 0, operation: Compare::NotEqual, value: vec![0; 4] },
                Expression::Verdict(Verdict::Jump(chain.into())),
            ]
        };
        let jump = |chain: &str| vec![Expression::Verdict(Verdict::Jump(chain.into()))];
        let base =
            |name, kind, hook, priority, rules: Vec<Vec<Expression>>| (name, BaseChain { kind, hook, priority }, rules);
        let (filter, nat) = (ChainType::Filter, ChainType::Nat);
        let checks = || vec![is_new(ENDPOINTS_CHECK), is_new(CLUSTER_IPS_CHECK)];
        let chains = [
            base("filter-prerouting", filter, Hook::Prerouting, BEFORE_DNAT, vec![is_new(FIREWALL_CHECK)]),
            base("filter-output-pre", filter, Hook::Output, BEFORE_DNAT, vec![is_new(FIREWALL_CHECK)]),
            base("filter-input", filter, Hook::Input, 0, vec![is_new(ENDPOINTS_CHECK)]),
            base("filter-forward", filter, Hook::Forward, 0, checks()),
            base("filter-output", filter, Hook::Output, 0, checks()),
            base("nat-prerouting", nat, Hook::Prerouting, DNAT, vec![jump(SERVICES_CHAIN)]),
            base("nat-output", nat, Hook::Output, DNAT, vec![jump(SERVICES_CHAIN)]),
            base("nat-postrouting", nat, Hook::Postrouting, SNAT, self.postrouting_rules()),
        ];
        for (name, place, rules) in chains {
            changes.add_chain(&self.table, name, Some(place));
            for rule in rules {
                changes.add_rule(&self.table, name, &rule);
            }
        }
    }

    /// Looks up the destination among addresses, then among node ports.
    fn add_services_rules(&self, changes: &mut Transaction) {
        let by_address = [self.load_frontend(0), vec![verdict_map(SetName::ServiceIps, 0)]].concat();
        changes.add_rule(&self.table, SERVICES_CHAIN, &by_address);
        changes.add_rule(&self.table, SERVICES_CHAIN, &self.node_port_rule(SetName::ServiceNodePorts));
    }

    fn node_port_rule(&self, map: SetName) -> Vec<Expression> {
        let on_node = vec![self.load_destination(0), in_set(SetName::NodePortAddresses, 0)];
        [on_node, self.load_node_port(0), vec![verdict_map(map, 0)]].concat()
    }

    fn add_filter_rules(&self, changes: &mut Transaction) {
        let no_endpoints = [self.load_frontend(0), vec![verdict_map(SetName::NoEndpointIps, 0)]].concat();
        changes.add_rule(&self.table, ENDPOINTS_CHECK, &no_endpoints);
        changes.add_rule(&self.table, ENDPOINTS_CHECK, &self.node_port_rule(SetName::NoEndpointNodePorts));
        let known = [self.load_destination(0), in_set(SetName::ClusterIps, 0)];
        let reject = Expression::Verdict(Verdict::Goto(REJECT_CHAIN.into()));
        changes.add_rule(&self.table, CLUSTER_IPS_CHECK, &[&known[..], &[reject]].concat());
        let unknown = [self.load_destination(0), in_set(SetName::ServiceCidrs, 0)];
        changes.add_rule(
            &self.table,
            CLUSTER_IPS_CHECK,
            &[&unknown[..], &[Expression::Verdict(Verdict::Drop)]].concat(),
        );
        let refuse = [Expression::Reject(Reject::PortUnreachable(self.table.family))];
        changes.add_rule(&self.table, REJECT_CHAIN, &refuse);
        let key_words = self.words() + 2;
        let mut firewall = self.load_frontend(0);
        firewall.push(in_set(SetName::FirewallIps, 0));
        firewall.push(self.load_source(key_words));
        firewall.push(Expression::InSet { set: SetName::FirewallRanges.name().into(), from: 0, inverted: true });
        firewall.push(Expression::Verdict(Verdict::Drop));
        changes.add_rule(&self.table, FIREWALL_CHECK, &firewall);
    }

    /// External traffic that must stay on this node, except that of pods and of the node itself.
    fn add_external_local_rules(&self, changes: &mut Transaction, chain: &str, by_address: bool) {
        let (bypass, local) = match by_address {
            true => (SetName::BypassIps, SetName::LocalIps),
            false => (SetName::BypassNodePorts, SetName::LocalNodePorts),
        };
        let load_key = || if by_address { self.load_frontend(0) } else { self.load_node_port(0) };
        let from_pod = vec![self.load_source(0), in_set(SetName::ClusterCidrs, 0)];
        let from_node = || {
            vec![
                Expression::FibType { address: FibAddress::Source, into: 0 },
                Expression::Compare { from: 0, operation: Compare::Equal, value: RTN_LOCAL.to_ne_bytes().to_vec() },
            ]
        };
        let rules = [
            [from_pod, load_key(), vec![verdict_map(bypass, 0)]].concat(),
            [from_node(), self.mark_for_masquerade(1)].concat(),
            [from_node(), load_key(), vec![verdict_map(bypass, 0)]].concat(),
            [load_key(), vec![verdict_map(local, 0)]].concat(),
        ];
        for rule in rules {
            changes.add_rule(&self.table, chain, &rule);
        }
    }

    fn postrouting_rules(&self) -> Vec<Vec<Expression>> {
        let mark = self.masquerade_mark.to_ne_bytes().to_vec();
        let marked = vec![
            Expression::Meta { key: MetaKey::Mark, into: 0 },
            Expression::Bitwise { from: 0, into: 1, mask: mark.clone(), xor: vec![0; 4] },
            Expression::Compare { from: 1, operation: Compare::NotEqual, value: vec![0; 4] },
            Expression::Bitwise { from: 0, into: 0, mask: vec![0xff; 4], xor: mark },
            Expression::SetMark { from: 0 },
            Expression::Masquerade,
        ];
        let words = self.words();
        let mut hairpin = vec![self.load_source(0)];
        hairpin.extend(self.load_frontend(words));
        hairpin.extend([in_set(SetName::Hairpin, 0), Expression::Masquerade]);
        vec![marked, hairpin]
    }

    /// Adds an endpoint chain with its rules.
    ///
    /// Registers: client, frontend, then the index or the endpoint that it becomes.
    pub fn add_endpoint_chain(&self, changes: &mut Transaction, chain: &EndpointChain) {
        let (name, words) = (chain.name(), self.words());
        changes.add_chain(&self.table, &name, None);
        let always =
            chain.masquerade == Masquerade::Always || (chain.masquerade == Masquerade::Outside && self.masquerade_all);
        if always {
            changes.add_rule(&self.table, &name, &self.mark_for_masquerade(0));
        } else if chain.masquerade == Masquerade::Outside {
            let outside = vec![
                self.load_source(0),
                Expression::InSet { set: SetName::ClusterCidrs.name().into(), from: 0, inverted: true },
            ];
            changes.add_rule(&self.table, &name, &[outside, self.mark_for_masquerade(words)].concat());
        }
        let (client, key) = (0, words);
        let by_address = chain.is_by_address();
        let endpoint = key + if by_address { words + 2 } else { 2 };
        let load_key = || if by_address { self.load_frontend(key) } else { self.load_node_port(key) };
        let family = self.table.family_number();
        let translate = Expression::Dnat { family, address: endpoint, port: Some(endpoint + words) };
        let (affinity, known) = match by_address {
            true => (SetName::Affinity, SetName::AffinityEndpoints),
            false => (SetName::NodePortAffinity, SetName::NodePortAffinityEndpoints),
        };
        let remember = chain.affinity.map(|seconds| {
            Expression::UpdateSet(DynamicSetUpdate {
                set: affinity.name().into(),
                key: client,
                data: Some(endpoint),
                timeout: Some(u64::from(seconds) * 1000),
            })
        });
        let load_client: Vec<Expression> = remember.iter().map(|_| self.load_source(client)).collect();
        if let Some(remember) = &remember {
            let mut sticky = [load_client.clone(), load_key()].concat();
            sticky.extend([
                Expression::MapLookup { map: affinity.name().into(), from: client, into: endpoint },
                in_set(known, key),
                remember.clone(),
                translate.clone(),
            ]);
            changes.add_rule(&self.table, &name, &sticky);
        }
        let mut choose = [load_client, load_key()].concat();
        choose.extend([
            Expression::Random { modulus: chain.endpoints.max(1), into: endpoint },
            Expression::MapLookup { map: chain.map.name().into(), from: key, into: endpoint },
        ]);
        choose.extend(remember);
        choose.push(translate);
        changes.add_rule(&self.table, &name, &choose);
    }

    fn mark_for_masquerade(&self, scratch: Register) -> Vec<Expression> {
        let mark = self.masquerade_mark;
        vec![
            Expression::Meta { key: MetaKey::Mark, into: scratch },
            Expression::Bitwise {
                from: scratch,
                into: scratch,
                mask: (!mark).to_ne_bytes().to_vec(),
                xor: mark.to_ne_bytes().to_vec(),
            },
            Expression::SetMark { from: scratch },
        ]
    }

    fn load_source(&self, into: Register) -> Expression {
        self.fields().load_source(into)
    }

    fn load_destination(&self, into: Register) -> Expression {
        self.fields().load_destination(into)
    }

    fn load_node_port(&self, into: Register) -> Vec<Expression> {
        self.fields().load_port(into)
    }

    fn load_frontend(&self, into: Register) -> Vec<Expression> {
        self.fields().load_frontend(into)
    }
}

fn in_set(set: SetName, from: Register) -> Expression {
    Expression::InSet { set: set.name().into(), from, inverted: false }
}

fn verdict_map(map: SetName, from: Register) -> Expression {
    Expression::VerdictMap { map: map.name().into(), from }
}
