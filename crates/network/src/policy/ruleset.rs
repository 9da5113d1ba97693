//! A ruleset of network policies: sets, chains and the verdict maps that lead pods to their chains.
//!
//! Chains and sets are named by what they mean, so that one with a name never changes its rules: a change of policies
//! adds and removes chains, a change of pods adds and removes elements.

use std::collections::{BTreeMap, BTreeSet};

use sys::nftables::{
    BaseChain, ChainType, Compare, CtKey, Expression, Hook, SetElement, SetKind, SetSpec, TableName, Transaction,
    Verdict,
};

use crate::packet_fields::PacketFields;

/// Pods isolated for ingress → chain.
pub(super) const INGRESS_MAP: &str = "ingress-pods";
/// Pods isolated for egress → chain.
pub(super) const EGRESS_MAP: &str = "egress-pods";
/// Pods of this node whose policies are in force.
pub(super) const KNOWN_SET: &str = "known-pods";
/// The range of this node's pods while there are policies: unknown pods of it send and receive nothing.
pub(super) const GUARDED_SET: &str = "guarded-ranges";
/// Pairs of a pod's address with itself.
pub(super) const SELF_SET: &str = "self-connections";
/// State bits of packets that belong to an accepted connection: established and related.
const ACCEPTED: u32 = 6;

/// A set with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicySet {
    pub spec: SetSpec,
    pub elements: BTreeSet<SetElement>,
}

/// A chain and the chains that it may jump to, which exist before it.
pub(super) type ChainRules = Vec<Vec<Expression>>;

/// Everything that one IP family's table holds beside the base chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyRuleset {
    pub sets: BTreeMap<String, PolicySet>,
    /// Chains of policies.
    pub policy_chains: BTreeMap<String, ChainRules>,
    /// Chains of pods with the same policies.
    pub pod_chains: BTreeMap<String, ChainRules>,
}

impl PolicyRuleset {
    /// A ruleset with the sets that base chains use.
    pub fn new(fields: PacketFields) -> Self {
        let address = fields.address_type();
        let mut ruleset = Self::default();
        let fixed = [
            SetSpec::new(INGRESS_MAP, &[address], SetKind::VerdictMap),
            SetSpec::new(EGRESS_MAP, &[address], SetKind::VerdictMap),
            SetSpec::new(KNOWN_SET, &[address], SetKind::Set),
            SetSpec::new(GUARDED_SET, &[address], SetKind::Set).with_intervals(),
            SetSpec::new(SELF_SET, &[address, address], SetKind::Set),
        ];
        for spec in fixed {
            ruleset.sets.insert(spec.name.clone(), PolicySet { spec, elements: BTreeSet::new() });
        }
        ruleset
    }

    /// Adds an element to a set of the ruleset.
    pub fn add_element(&mut self, set: &str, element: SetElement) {
        if let Some(set) = self.sets.get_mut(set) {
            set.elements.insert(element);
        }
    }

    /// Writes the whole table.
    pub fn write_table(&self, table: &TableName, changes: &mut Transaction) {
        changes.replace_table(table);
        self.write_difference(&Self::default(), table, changes);
        let fields = PacketFields::of_family(table.family);
        // Two base chains, because a packet that one of them accepts must still pass the other.
        write_base_chain(table, changes, ("ingress", 0), fields.load_destination(0), INGRESS_MAP);
        write_base_chain(table, changes, ("egress", 1), fields.load_source(0), EGRESS_MAP);
    }

    /// Writes what differs from `earlier`.
    pub fn write_difference(&self, earlier: &Self, table: &TableName, changes: &mut Transaction) {
        for (name, set) in &self.sets {
            if !earlier.sets.contains_key(name) {
                changes.add_set(table, &set.spec);
            }
        }
        let new_chains =
            |now: &BTreeMap<String, ChainRules>, then: &BTreeMap<String, ChainRules>, out: &mut Transaction| {
                for (name, rules) in now.iter().filter(|(name, _)| !then.contains_key(*name)) {
                    out.add_chain(table, name, None);
                    rules.iter().for_each(|rule| out.add_rule(table, name, rule));
                }
            };
        new_chains(&self.policy_chains, &earlier.policy_chains, changes);
        new_chains(&self.pod_chains, &earlier.pod_chains, changes);
        for (name, set) in &self.sets {
            let known = earlier.sets.get(name).map(|set| &set.elements);
            write_elements(table, name, known, &set.elements, changes);
        }
        let old_chains =
            |then: &BTreeMap<String, ChainRules>, now: &BTreeMap<String, ChainRules>, out: &mut Transaction| {
                for name in then.keys().filter(|name| !now.contains_key(*name)) {
                    out.flush_chain(table, name);
                    out.delete_chain(table, name);
                }
            };
        old_chains(&earlier.pod_chains, &self.pod_chains, changes);
        old_chains(&earlier.policy_chains, &self.policy_chains, changes);
        for name in earlier.sets.keys().filter(|name| !self.sets.contains_key(*name)) {
            changes.delete_set(table, name);
        }
    }
}

/// Intervals of one-part keys are pairs of elements that change together, so such sets are replaced.
fn write_elements(
    table: &TableName,
    name: &str,
    known: Option<&BTreeSet<SetElement>>,
    wanted: &BTreeSet<SetElement>,
    changes: &mut Transaction,
) {
    let none = BTreeSet::new();
    let known = known.unwrap_or(&none);
    if known == wanted {
        return;
    }
    let is_interval = known.iter().chain(wanted).any(|element| element.interval_end);
    let (removed, added): (Vec<SetElement>, Vec<SetElement>) = match is_interval {
        true => (known.iter().cloned().collect(), wanted.iter().cloned().collect()),
        false => (known.difference(wanted).cloned().collect(), wanted.difference(known).cloned().collect()),
    };
    if is_interval && !removed.is_empty() {
        changes.flush_set(table, name);
    } else {
        changes.delete_elements(table, name, &removed);
    }
    changes.add_elements(table, name, &added);
}

fn write_base_chain(
    table: &TableName,
    changes: &mut Transaction,
    (name, priority): (&str, i32),
    load_pod: Expression,
    map: &str,
) {
    let fields = PacketFields::of_family(table.family);
    let accept = || Expression::Verdict(Verdict::Accept);
    let in_set = |set: &str, inverted| Expression::InSet { set: set.into(), from: 0, inverted };
    changes.add_chain(table, name, Some(BaseChain { kind: ChainType::Filter, hook: Hook::Forward, priority }));
    let established = [
        Expression::Ct { key: CtKey::State, into: 0 },
        Expression::Bitwise { from: 0, into: 0, mask: ACCEPTED.to_ne_bytes().to_vec(), xor: vec![0; 4] },
        Expression::Compare { from: 0, operation: Compare::NotEqual, value: vec![0; 4] },
        accept(),
    ];
    let to_itself = [fields.load_source(0), fields.load_destination(fields.words()), in_set(SELF_SET, false), accept()];
    let isolated = [load_pod.clone(), Expression::VerdictMap { map: map.into(), from: 0 }];
    let unknown = [load_pod, in_set(GUARDED_SET, false), in_set(KNOWN_SET, true), Expression::Verdict(Verdict::Drop)];
    for rule in [&established[..], &to_itself, &isolated, &unknown] {
        changes.add_rule(table, name, rule);
    }
}
