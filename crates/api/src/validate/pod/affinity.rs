//! Validation of affinity to nodes and to other pods.

use super::scheduling;
use crate::{
    Value,
    validate::{Errors, at::At, names, selector},
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The faults of affinity; what an older specification had wrong in values of selectors stays allowed.
pub(super) fn check(at: &At, old: Option<&Value>, e: &mut Errors) {
    let before = old.map(|old| &old["affinity"]);
    let nodes = at.get("nodeAffinity");
    if nodes.get(REQUIRED).exists() {
        let lenient = before.is_some_and(|old| faulty_nodes(&old["nodeAffinity"][REQUIRED]));
        selector::nodes(&nodes.get(REQUIRED), lenient, e);
    }
    for term in nodes.get(PREFERRED).items() {
        weight(&term, e);
        selector::node_term(&term.get("preference"), true, e);
    }
    let lenient = before.is_some_and(faulty_pods);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = at.get(kind);
        pods.get(REQUIRED).items().for_each(|term| self::term(&term, lenient, e));
        for weighted in pods.get(PREFERRED).items() {
            weight(&weighted, e);
            term(&weighted.get("podAffinityTerm"), lenient, e);
        }
    }
}

fn faulty_nodes(selector: &Value) -> bool {
    let mut e = Vec::new();
    if !selector.is_null() {
        selector::nodes(&At::top(selector), false, &mut e);
    }
    !e.is_empty()
}

fn faulty_pods(affinity: &Value) -> bool {
    let required = |kind: &str| affinity[kind][REQUIRED].as_array().into_iter().flatten();
    let terms = required("podAffinity").chain(required("podAntiAffinity"));
    terms.into_iter().any(|term| selector::is_faulty(&term["labelSelector"]))
}

fn weight(at: &At, e: &mut Errors) {
    if !(1..=100).contains(&at.get("weight").int()) {
        at.get("weight").invalid_int(e, "must be in the range 1-100");
    }
}

fn term(at: &At, lenient: bool, e: &mut Errors) {
    selector::lenient(&at.get("labelSelector"), lenient, e);
    selector::lenient(&at.get("namespaceSelector"), lenient, e);
    for namespace in at.get("namespaces").texts() {
        for fault in names::label(namespace) {
            at.get("namespace").invalid_as(e, namespace, fault);
        }
    }
    scheduling::label_keys(at, e);
    let key = at.get("topologyKey");
    if key.is_empty() {
        key.required(e, "can not be empty");
    }
    key.form(e, names::qualified);
}
