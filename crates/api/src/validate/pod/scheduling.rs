//! What steers a pod to nodes: gates, tolerations, spreading, affinity to nodes and to other pods.

use crate::validate::prelude::*;
use crate::validate::selector::{self, is_faulty};

/// Constraints differ in topology or in what happens; selectors that had faults may keep them.
pub fn spread(list: &At, e: &mut Errors) {
    let before = list.old.as_array().into_iter().flatten();
    let had_faults = before.into_iter().any(|constraint| is_faulty(&constraint["labelSelector"]));
    let pair = |constraint: &Value| (constraint["topologyKey"].clone(), constraint["whenUnsatisfiable"].clone());
    for (index, constraint) in list.items().enumerate() {
        if list.items().skip(index + 1).any(|other| pair(other.value) == pair(constraint.value)) {
            let shown =
                format!("{{{}, {}}}", constraint.text_of("topologyKey"), constraint.text_of("whenUnsatisfiable"));
            constraint.get("{topologyKey, whenUnsatisfiable}").duplicate(e, shown);
        }
        if !had_faults {
            selector::check(&constraint.get("labelSelector"), false, e);
        }
    }
}

/// The faults of keys whose values are taken from the pod itself.
pub fn label_keys(at: &At, e: &mut Errors) {
    let (matching, other, labels) = (at.get("matchLabelKeys"), at.get("mismatchLabelKeys"), at.get("labelSelector"));
    if matching.is_empty() && other.is_empty() {
        return;
    }
    for keys in [&matching, &other].into_iter().filter(|keys| !keys.is_empty()) {
        if labels.exists() {
            keys.items().for_each(|key| key.form(e, names::qualified));
        } else {
            keys.forbidden(e, "must not be specified when labelSelector is not set");
        }
    }
    let mut seen: Vec<&str> = labels.get("matchLabels").entries().map(|(key, _)| key).collect();
    for key in labels.get("matchExpressions").items().map(|requirement| requirement.text_of("key")) {
        let position = matching.texts().position(|label| label == key);
        if let Some(index) = position.filter(|_| seen.contains(&key)) {
            at.index(index).invalid_as(e, key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.push(key);
    }
    for key in matching.items().filter(|key| other.has(key.text())) {
        key.invalid_text(e, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The faults of affinity; what an older specification had wrong in values of selectors stays allowed.
pub fn affinity(at: &At, e: &mut Errors) {
    let nodes = at.get("nodeAffinity");
    let required = nodes.get(REQUIRED);
    if required.exists() {
        selector::nodes(&required, selector::is_faulty_for_nodes(required.old), e);
    }
    for term in nodes.get(PREFERRED).items() {
        weight(&term, e);
        rules::check("LooseNodeSelectorTerm", &term.get("preference"), e);
    }
    let term = if faulty_pods(at.old) { "LoosePodAffinityTerm" } else { "PodAffinityTerm" };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = at.get(kind);
        pods.get(REQUIRED).items().for_each(|one| rules::check(term, &one, e));
        for weighted in pods.get(PREFERRED).items() {
            weight(&weighted, e);
            rules::check(term, &weighted.get("podAffinityTerm"), e);
        }
    }
}

fn faulty_pods(affinity: &Value) -> bool {
    let required = |kind: &str| affinity[kind][REQUIRED].as_array().into_iter().flatten();
    let mut terms = required("podAffinity").chain(required("podAntiAffinity"));
    terms.any(|term| selector::is_faulty(&term["labelSelector"]))
}

fn weight(at: &At, e: &mut Errors) {
    if !(1..=100).contains(&at.get("weight").int()) {
        at.get("weight").invalid_int(e, "must be in the range 1-100");
    }
}
