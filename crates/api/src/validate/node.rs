//! Validation of nodes and namespaces beyond the rule tables. Upstream reports some node errors under `metadata`.

use super::{ip_address, pod::resources, prelude::*};

pub fn validate_taint_annotation(notes: &FieldCursor, e: &mut ErrorList) {
    const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
    let text = notes.entry(TAINTS).text();
    if text.is_empty() {
        return;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(list) => validate_taints(&FieldCursor::for_create(&list), e),
        Err(error) => notes.invalid_as(e, TAINTS, error.to_string()),
    }
}

pub fn validate_taints_of_node(list: &FieldCursor, e: &mut ErrorList) {
    let meta = list.root().get("metadata");
    validate_taints(&meta.child_as("taints", list.value), e);
}

fn validate_taints(list: &FieldCursor, e: &mut ErrorList) {
    let mut seen = Vec::new();
    for taint in list.items() {
        check_block("Taint", &taint, e);
        let pair = (taint.text_at("key"), taint.text_at("effect"));
        if seen.contains(&pair) {
            let shown = render_bad_value("core/v1.Taint", taint.value);
            taint.push_error(e, FieldErrorType::Duplicate(shown), "taints must be unique by key and effect pair");
        }
        seen.push(pair);
    }
}

pub fn validate_node_amounts(list: &FieldCursor, e: &mut ErrorList) {
    for (name, amount) in list.entries() {
        resources::validate_quantity_value(name, &list.child_as(name, amount.value), e);
    }
}

/// Requires features to be sorted and unique.
pub fn validate_features(list: &FieldCursor, e: &mut ErrorList) {
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
        } else if !is_feature_name(text) {
            let rule = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature \
                or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
            feature.invalid_text(e, format!("invalid feature name {text:?}: {rule}"));
        }
        last = Some(text);
    }
}

fn is_feature_name(text: &str) -> bool {
    let segment =
        |s: &str| s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.chars().all(|c| c.is_ascii_alphanumeric());
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.split('/').all(segment)
}

pub fn validate_pod_networks(cidrs: &FieldCursor, e: &mut ErrorList) {
    cidrs.items().for_each(|cidr| cidr.check_cidr(e, &[]));
    if cidrs.len() > 1
        && let Some((at, text)) = cidrs.texts().enumerate().find(|(_, text)| ip_address::lenient_cidr(text).is_none())
    {
        let why = format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})");
        let message = format!("invalid PodCIDRs. failed to check with dual stack with error:{why}");
        cidrs.push_error(e, FieldErrorType::Internal, message);
    }
    if cidrs.len() > 1 && (ip_address::is_dual_stack(cidrs.texts()) != Some(true) || cidrs.len() > 2) {
        cidrs.invalid(e, "may specify no more than one CIDR for each IP family");
    }
}

/// Validates a node update.
pub fn validate_node_change(node: &FieldCursor, e: &mut ErrorList) {
    let (spec, status) = (node.get("spec"), node.get("status"));
    status.get("addresses").for_each_duplicate(
        |address| address.value,
        |address, value| address.duplicate(e, render_bad_value("core/v1.NodeAddress", value)),
    );
    let cidrs = spec.get("podCIDRs");
    let old = cidrs.old_cursor();
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
