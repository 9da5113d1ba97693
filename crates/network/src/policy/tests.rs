//! Tests of compilation: which pods are isolated, and which elements their sets have.

use std::{hash::RandomState, sync::Arc};

use serde_json::{Value, json};

use super::{
    compile::{PolicyCompiler, PolicyObjects},
    ruleset::{EGRESS_MAP, GUARDED_SET, INGRESS_MAP, KNOWN_SET, PolicyRuleset},
};

fn pod(name: &str, node: &str, last: u8, ports: Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "ns", "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [{ "ports": ports }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": format!("10.42.0.{last}") }] },
    })
}

/// Compiles policies with these specs for node `n1`, with `web` and `db` on it and `client` on another.
fn check(specs: &[Value]) -> PolicyRuleset {
    let named = json!([{ "name": "http", "containerPort": 8080, "protocol": "TCP" }]);
    let pods = [pod("web", "n1", 1, named), pod("db", "n1", 2, json!([])), pod("client", "n2", 3, json!([]))];
    let policies = specs.iter().enumerate().map(|(index, spec)| {
        let object = json!({ "metadata": { "name": format!("p{index}"), "namespace": "ns" }, "spec": spec });
        Arc::new(serde_json::from_value(object).unwrap())
    });
    let namespace = json!({ "metadata": { "name": "ns", "labels": { "team": "a" } } });
    let objects = PolicyObjects {
        pods: pods.into_iter().map(|pod| Arc::new(serde_json::from_value(pod).unwrap())).collect(),
        namespaces: vec![Arc::new(serde_json::from_value(namespace).unwrap())],
        policies: policies.collect(),
    };
    let compiler = PolicyCompiler {
        node_name: "n1".into(),
        node_ranges: vec!["10.42.0.0/24".parse().unwrap()],
        names: RandomState::new(),
    };
    compiler.compile(&objects, true)
}

/// The last octets of the keys of a set whose name begins so.
fn members(ruleset: &PolicyRuleset, prefix: &str) -> Vec<u8> {
    let sets = ruleset.sets.iter().filter(|(name, _)| name.starts_with(prefix));
    sets.flat_map(|(_, set)| set.elements.iter().map(|element| element.key[3])).collect()
}

#[test]
fn without_policies_nothing_is_isolated() {
    let ruleset = check(&[]);
    assert_eq!(members(&ruleset, KNOWN_SET), [1, 2]);
    assert!(members(&ruleset, INGRESS_MAP).is_empty() && members(&ruleset, GUARDED_SET).is_empty());
}

#[test]
fn selected_pods_are_isolated_in_the_policys_directions() {
    let ruleset = check(&[json!({ "podSelector": { "matchLabels": { "app": "web" } }, "policyTypes": ["Egress"] })]);
    assert_eq!((members(&ruleset, INGRESS_MAP).len(), members(&ruleset, EGRESS_MAP)), (0, vec![1]));
    let both = check(&[json!({ "podSelector": {}, "egress": [{}] })]);
    assert_eq!((members(&both, INGRESS_MAP), members(&both, EGRESS_MAP)), (vec![1, 2], vec![1, 2]));
    assert!(!members(&both, GUARDED_SET).is_empty());
}

#[test]
fn peers_of_other_nodes_are_elements() {
    let peer =
        json!({ "podSelector": { "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["db"] }] } });
    let ruleset = check(&[json!({ "podSelector": {}, "ingress": [{ "from": [peer] }] })]);
    assert_eq!(members(&ruleset, "peers-"), [1, 3]);
    let other = json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } });
    assert!(members(&check(&[json!({ "podSelector": {}, "ingress": [{ "from": [other] }] })]), "peers-").is_empty());
}

#[test]
fn pods_with_the_same_policies_share_a_chain() {
    let ruleset = check(&[json!({ "podSelector": {}, "ingress": [{}] })]);
    assert_eq!((ruleset.pod_chains.len(), ruleset.policy_chains.len()), (1, 1));
}

#[test]
fn exceptions_and_named_ports_are_sets_of_their_own() {
    let block = json!({ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.1.2.0/24"] } });
    let rule = json!({ "from": [block], "ports": [{ "port": "http" }, { "port": 80, "endPort": 90 }, { "port": 85, "endPort": 99 }] });
    let ruleset = check(&[json!({ "podSelector": {}, "ingress": [rule] })]);
    let of = |prefix: &str| {
        ruleset.sets.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, set)| set).collect::<Vec<_>>()
    };
    assert_eq!(of("ranges-").len(), 2);
    assert_eq!(of("ports-")[0].elements.len(), 1, "ranges of ports that overlap are one");
    assert_eq!(members(&ruleset, "named-ports-"), [1]);
    let rules: Vec<_> = ruleset.policy_chains.values().flatten().collect();
    assert_eq!(rules.len(), 2, "one rule with numbers, one with names");
}

#[test]
fn unchanged_chains_keep_their_names() {
    let spec = json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80 }] }] });
    let mut earlier = sys::nftables::Transaction::new();
    let table = sys::nftables::TableName::new(sys::nftables::Family::Ip, "t");
    let ruleset = check(std::slice::from_ref(&spec));
    ruleset.write_difference(&ruleset, &table, &mut earlier);
    assert!(earlier.is_empty(), "no change, no transaction");
}
