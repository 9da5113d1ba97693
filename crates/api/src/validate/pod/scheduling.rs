//! Validation of scheduling constraints: topology spread, node and pod affinity.

use crate::validate::prelude::*;
use crate::validate::selector::{self, is_invalid_label_selector};

/// Validates topology spread constraints: unique, with valid selectors unless invalid ones are stored.
pub fn validate_spread(list: &FieldCursor, e: &mut ErrorList) {
    let before = list.old.as_array().into_iter().flatten();
    let had_faults = before.into_iter().any(|constraint| is_invalid_label_selector(&constraint["labelSelector"]));
    let pair = |constraint: &Value| (constraint["topologyKey"].clone(), constraint["whenUnsatisfiable"].clone());
    for (index, constraint) in list.items().enumerate() {
        if list.items().skip(index + 1).any(|other| pair(other.value) == pair(constraint.value)) {
            let shown =
                format!("{{{}, {}}}", constraint.text_at("topologyKey"), constraint.text_at("whenUnsatisfiable"));
            constraint.get("{topologyKey, whenUnsatisfiable}").duplicate(e, shown);
        }
        if !had_faults {
            selector::check_label_selector(&constraint.get("labelSelector"), false, e);
        }
    }
}

/// Validates match and mismatch label keys.
pub fn validate_label_keys(at: &FieldCursor, e: &mut ErrorList) {
    let (matching, other, labels) = (at.get("matchLabelKeys"), at.get("mismatchLabelKeys"), at.get("labelSelector"));
    if matching.is_empty() && other.is_empty() {
        return;
    }
    for keys in [&matching, &other].into_iter().filter(|keys| !keys.is_empty()) {
        if labels.exists() {
            keys.items().for_each(|key| key.check_format(e, names::check_qualified_name));
        } else {
            keys.forbidden(e, "must not be specified when labelSelector is not set");
        }
    }
    let mut seen: Vec<&str> = labels.get("matchLabels").entries().map(|(key, _)| key).collect();
    for key in labels.get("matchExpressions").items().map(|requirement| requirement.text_at("key")) {
        let position = matching.texts().position(|label| label == key);
        if let Some(index) = position.filter(|_| seen.contains(&key)) {
            at.element(index).invalid_as(e, key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.push(key);
    }
    for key in matching.items().filter(|key| other.contains_text(key.text())) {
        key.invalid_text(e, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates affinity; invalid stored selector values are tolerated.
pub fn validate_affinity(at: &FieldCursor, e: &mut ErrorList) {
    let nodes = at.get("nodeAffinity");
    let required = nodes.get(REQUIRED);
    if required.exists() {
        selector::check_node_selector(&required, selector::is_invalid_node_selector(required.old), e);
    }
    for term in nodes.get(PREFERRED).items() {
        check_weight(&term, e);
        check_block("LooseNodeSelectorTerm", &term.get("preference"), e);
    }
    let term = if has_invalid_pod_selectors(at.old) { "LoosePodAffinityTerm" } else { "PodAffinityTerm" };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = at.get(kind);
        pods.get(REQUIRED).items().for_each(|one| check_block(term, &one, e));
        for weighted in pods.get(PREFERRED).items() {
            check_weight(&weighted, e);
            check_block(term, &weighted.get("podAffinityTerm"), e);
        }
    }
}

fn has_invalid_pod_selectors(affinity: &Value) -> bool {
    let required = |is: &str| affinity[is][REQUIRED].as_array().into_iter().flatten();
    let mut terms = required("podAffinity").chain(required("podAntiAffinity"));
    terms.any(|term| selector::is_invalid_label_selector(&term["labelSelector"]))
}

fn check_weight(at: &FieldCursor, e: &mut ErrorList) {
    if !(1..=100).contains(&at.get("weight").int()) {
        at.get("weight").invalid_int(e, "must be in the range 1-100");
    }
}
