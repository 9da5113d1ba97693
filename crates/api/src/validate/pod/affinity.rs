//! Affinity to nodes and to other pods.

use crate::validate::prelude::*;
use crate::validate::selector;

pub(super) const FUNCTIONS: Functions = functions! { affinity };

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The faults of affinity; what an older specification had wrong in values of selectors stays allowed.
fn affinity(at: &At, e: &mut Errors) {
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
