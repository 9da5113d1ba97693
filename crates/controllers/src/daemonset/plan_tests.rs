//! Tests of the decisions about daemon pods.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2030-01-01T00:01:00Z";

fn set(surge: i32, unavailable: i32) -> DaemonSet {
    serde_json::from_value(json!({"spec": {"selector": {}, "template": {"spec": {"containers": []}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}}))
    .unwrap()
}

fn node(name: &str) -> Arc<Node> {
    let taints = name.ends_with('x').then(|| json!([{"key": "gone", "effect": "NoExecute"}]));
    let taints = taints.or(name.ends_with('s').then(|| json!([{"key": "full", "effect": "NoSchedule"}])));
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).unwrap())
}

/// A pod from `name node revision state [age]`; the current revision is `new`, a state is `ready`, `unready`,
/// `deleting`, `unbound` or a phase.
fn pod(text: &str) -> Arc<PodView> {
    let words: Vec<&str> = text.split(' ').collect();
    let (node, state) = (words[1], words[3]);
    let ready = if matches!(state, "ready" | "deleting") { "True" } else { "False" };
    let phase = if state.starts_with(char::is_uppercase) { state } else { "Running" };
    let created = format!("2030-01-01T00:00:{:02}Z", words.get(4).map_or(0, |age| age.parse::<u8>().unwrap()));
    let spec = json!({"containers": [], "nodeName": (state != "unbound").then_some(node)});
    Arc::new(
        serde_json::from_value(json!({"metadata": {"name": words[0], "creationTimestamp": created,
            "labels": {"controller-revision-hash": words[2]}, "deletionTimestamp": (state == "deleting").then_some(NOW)},
            "spec": spec, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready,
                "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}))
        .unwrap(),
    )
}

fn pods_by_node(pods: &[&str]) -> PodsByNode {
    let mut by_node = PodsByNode::new();
    for text in pods {
        by_node.entry(text.split(' ').nth(1).unwrap().to_owned()).or_default().push(pod(text));
    }
    by_node
}

fn names(pods: &[Arc<PodView>]) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    names.sort();
    names
}

fn check_nodes(set: &DaemonSet, nodes: &[&str], pods: &[&str], expected: Value) {
    let nodes: Vec<_> = nodes.iter().map(|name| node(name)).collect();
    let plan = plan_nodes(set, &nodes, &pods_by_node(pods), "new", NOW.parse().unwrap());
    let pods_of = |pods: &[(String, Arc<PodView>)]| names(&pods.iter().map(|(_, pod)| pod.clone()).collect::<Vec<_>>());
    let got = json!([plan.create, names(&plan.delete), pods_of(&plan.failed), pods_of(&plan.succeeded)]);
    assert_eq!(got, expected, "{pods:?}");
}

#[test]
fn every_node_runs_one_pod() {
    let set = set(0, 1);
    check_nodes(&set, &["a", "b"], &["p b new ready"], json!([["a"], [], [], []]));
    check_nodes(&set, &["a"], &["p a new deleting"], json!([[], [], [], []]));
    check_nodes(&set, &["a"], &["p a new ready 5", "q a new ready 1"], json!([[], ["p"], [], []]));
    check_nodes(&set, &["a"], &["p a new unbound 1", "q a new ready 5"], json!([[], ["p"], [], []]));
    check_nodes(&set, &["a"], &["p a new Failed", "q a new Succeeded"], json!([[], [], ["p"], ["q"]]));
}

#[test]
fn excluded_and_missing_nodes_lose_their_pods() {
    let set = set(0, 1);
    check_nodes(&set, &["x"], &["p x new ready", "q x new deleting"], json!([[], ["p"], [], []]));
    check_nodes(&set, &["s"], &["p s new ready"], json!([[], [], [], []]));
    check_nodes(&set, &["s"], &[], json!([[], [], [], []]));
    check_nodes(&set, &[], &["p gone new unbound", "q gone new ready"], json!([[], ["p"], [], []]));
}

#[test]
fn surge_keeps_an_old_pod_until_the_new_one_is_available() {
    let set = set(1, 0);
    check_nodes(&set, &["a"], &["p a old ready", "q a new unready"], json!([[], [], [], []]));
    check_nodes(&set, &["a"], &["p a old ready", "q a new ready"], json!([[], ["p"], [], []]));
    check_nodes(&set, &["a"], &["p a old unready", "q a new unready"], json!([[], ["p"], [], []]));
    check_nodes(&set, &["a"], &["p a old ready 1", "r a old ready 2", "q a new unready"], json!([[], ["r"], [], []]));
    check_nodes(&set, &["a"], &["p a old deleting"], json!([["a"], [], [], []]));
    check_nodes(&set, &["s"], &["p s old deleting"], json!([[], [], [], []]));
}

fn check_update(set: &DaemonSet, nodes: &[&str], pods: &[&str], expected: Value) {
    let nodes: Vec<_> = nodes.iter().map(|name| node(name)).collect();
    let plan = plan_rolling_update(set, &nodes, &pods_by_node(pods), "new", NOW.parse().unwrap());
    assert_eq!(json!([plan.create, names(&plan.delete)]), expected, "{pods:?}");
}

#[test]
fn rolling_update_respects_max_unavailable() {
    let nodes = ["a", "b", "c"];
    let old = ["p a old ready", "q b old ready", "r c old ready"];
    check_update(&set(0, 1), &nodes, &old, json!([[], ["p"]]));
    check_update(&set(0, 2), &nodes, &old, json!([[], ["p", "q"]]));
    check_update(&set(0, 0), &nodes, &old, json!([[], ["p"]]));
    check_update(&set(0, 1), &nodes, &["p a new unready", "q b old ready", "r c old ready"], json!([[], []]));
    check_update(&set(0, 1), &nodes, &["p a old deleting", "q b old ready", "r c old ready"], json!([[], []]));
    check_update(&set(0, 1), &nodes, &["q b old ready", "r c old ready"], json!([[], []]));
    check_update(&set(0, 1), &nodes, &["p a old unready", "q b old unready", "r c old ready"], json!([[], ["p", "q"]]));
    check_update(&set(0, 1), &nodes, &["p a new ready", "q b new ready", "r c old ready"], json!([[], ["r"]]));
}

#[test]
fn rolling_update_respects_max_surge() {
    let nodes = ["a", "b", "c"];
    let old = ["p a old ready", "q b old ready", "r c old ready"];
    check_update(&set(1, 0), &nodes, &old, json!([["a"], []]));
    check_update(&set(2, 0), &nodes, &old, json!([["a", "b"], []]));
    check_update(&set(1, 0), &nodes, &["p a old ready", "s a new unready", "q b old ready"], json!([[], []]));
    check_update(&set(1, 0), &nodes, &["p a old ready", "s a new ready", "q b old ready"], json!([["b"], ["p"]]));
    check_update(&set(1, 0), &nodes, &["p a old unready", "q b old ready"], json!([["a", "b"], []]));
}

#[test]
fn surge_removes_pods_of_excluded_nodes_when_others_are_available() {
    check_update(&set(1, 0), &["a", "s"], &["p a new unready", "q s old ready"], json!([[], []]));
    check_update(&set(1, 0), &["a", "s"], &["p a new ready", "q s old ready"], json!([[], ["q"]]));
    check_update(&set(1, 0), &["a", "s"], &["p a new unready", "q s old unready"], json!([[], ["q"]]));
}
