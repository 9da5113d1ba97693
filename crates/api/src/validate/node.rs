//! Nodes and namespaces, as far as the tables cannot say what is right. Upstream tells some faults of nodes under `metadata`.

use super::{net, pod::resources, prelude::*};

pub fn taint_annotation(notes: &At, e: &mut Errors) {
    const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
    let text = notes.key(TAINTS).text();
    if text.is_empty() {
        return;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(list) => taints(&At::top(&list), e),
        Err(error) => notes.invalid_as(e, TAINTS, error.to_string()),
    }
}

pub fn taints_of_node(list: &At, e: &mut Errors) {
    let meta = list.whole().get("metadata");
    taints(&meta.called("taints", list.value), e);
}

fn taints(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for taint in list.items() {
        rules::check("Taint", &taint, e);
        let pair = (taint.text_of("key"), taint.text_of("effect"));
        if seen.contains(&pair) {
            let shown = Bad::of("core/v1.Taint", taint.value);
            taint.fault(e, Fault::Duplicate(shown), "taints must be unique by key and effect pair");
        }
        seen.push(pair);
    }
}

pub fn node_amounts(list: &At, e: &mut Errors) {
    for (name, amount) in list.entries() {
        resources::amount(name, &list.called(name, amount.value), e);
    }
}

/// Features stand sorted, each once.
pub fn features(list: &At, e: &mut Errors) {
    let mut last: Option<&str> = None;
    for feature in list.items() {
        let text = feature.text();
        if let Some(last) = last {
            if last == text {
                feature.duplicate(e, text);
            } else if last > text {
                feature.invalid_text(e, "list must be sorted alphabetically");
            }
        }
        if text.len() > 253 {
            feature.invalid_text(e, format!("invalid feature name {text:?}: must be no more than 253 characters"));
        } else if !is_feature(text) {
            let rule = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature \
                or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
            feature.invalid_text(e, format!("invalid feature name {text:?}: {rule}"));
        }
        last = Some(text);
    }
}

fn is_feature(text: &str) -> bool {
    let segment =
        |s: &str| s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.chars().all(|c| c.is_ascii_alphanumeric());
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.split('/').all(segment)
}

pub fn pod_networks(cidrs: &At, e: &mut Errors) {
    cidrs.items().for_each(|cidr| cidr.cidr(e, &[]));
    if cidrs.len() > 1
        && let Some((at, text)) = cidrs.texts().enumerate().find(|(_, text)| net::lenient_cidr(text).is_none())
    {
        let why = format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})");
        let message = format!("invalid PodCIDRs. failed to check with dual stack with error:{why}");
        cidrs.fault(e, Fault::Internal, message);
    }
    if cidrs.len() > 1 && (net::dual_stack(cidrs.texts()) != Some(true) || cidrs.len() > 2) {
        cidrs.invalid(e, "may specify no more than one CIDR for each IP family");
    }
}

/// What a node got once, it keeps.
pub fn node_change(node: &At, e: &mut Errors) {
    let (spec, status) = (node.get("spec"), node.get("status"));
    status
        .get("addresses")
        .unique(|address| address.value, |address, value| address.duplicate(e, Bad::of("core/v1.NodeAddress", value)));
    let cidrs = spec.get("podCIDRs");
    let old = cidrs.before();
    if !old.is_empty() {
        let message = "node updates may not change podCIDR except from \"\" to valid";
        if old.len() != cidrs.len() {
            cidrs.forbidden(e, message);
        } else {
            let changed = old.texts().zip(cidrs.texts()).filter(|(old, new)| old != new);
            changed.for_each(|_| cidrs.forbidden(e, message));
        }
    }
}
