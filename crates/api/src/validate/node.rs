//! Validation of nodes.

use super::{Errors, at::At, names, net, pod::resources, pod::scheduling};
use crate::Value;

const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";

/// The faults of a node. Upstream tells some under `metadata`.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let (meta, spec, status) = (new.get("metadata"), new.get("spec"), new.get("status"));
    annotations(&meta.get("annotations"), e);
    if old.is_none() {
        taints(&meta.called("taints", spec.get("taints").value), e);
    }
    for field in ["capacity", "allocatable"] {
        let list = status.get(field);
        for (name, amount) in list.entries() {
            resources::amount(name, &list.called(name, amount.value), e);
        }
    }
    match old {
        None => created(new, e),
        Some(old) => changed(new, old, e),
    }
}

fn annotations(notes: &At, e: &mut Errors) {
    let text = notes.key(TAINTS).text();
    if text.is_empty() {
        return;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(list) => taints(&At::top(&list), e),
        Err(error) => notes.invalid_as(e, TAINTS, error.to_string()),
    }
}

fn taints(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for taint in list.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        key.form(e, names::qualified);
        let faults = names::label_value(value.text());
        if !faults.is_empty() {
            value.invalid_text(e, faults.join(";"));
        }
        scheduling::taint_effect(&effect, e);
        let pair = (key.text(), effect.text());
        if seen.contains(&pair) {
            let shown = super::error::Bad::Shown(super::render::internal("core/v1.Taint", taint.value));
            taint.fault(e, super::error::Fault::Duplicate(shown), "taints must be unique by key and effect pair");
        }
        seen.push(pair);
    }
}

fn features(list: &At, e: &mut Errors) {
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

fn created(node: &At, e: &mut Errors) {
    let (meta, spec, status) = (node.get("metadata"), node.get("spec"), node.get("status"));
    let info = status.get("nodeInfo");
    let swap = meta.called("nodeSwapStatus", info.get("swap").value);
    if swap.get("capacity").exists() && swap.get("capacity").int() <= 0 {
        swap.get("capacity").invalid(e, "must be greater than zero");
    }
    features(&status.get("declaredFeatures"), e);
    let cidrs = spec.get("podCIDRs");
    cidrs.items().for_each(|cidr| cidr.cidr(e, &[]));
    if cidrs.len() > 1 && (net::dual_stack(cidrs.texts()) != Some(true) || cidrs.len() > 2) {
        cidrs.invalid(e, "may specify no more than one CIDR for each IP family");
    }
}

fn changed(node: &At, old: &At, e: &mut Errors) {
    let (meta, spec, status) = (node.get("metadata"), node.get("spec"), node.get("status"));
    let before = old.get("spec");
    features(&status.get("declaredFeatures"), e);
    let mut seen: Vec<&Value> = Vec::new();
    for address in status.get("addresses").items() {
        if seen.contains(&address.value) {
            let shown = super::render::internal("core/v1.NodeAddress", address.value);
            address.duplicate(e, super::error::Bad::Shown(shown));
        }
        seen.push(address.value);
    }
    let (cidrs, old_cidrs) = (spec.get("podCIDRs"), before.get("podCIDRs"));
    if !old_cidrs.is_empty() {
        let message = "node updates may not change podCIDR except from \"\" to valid";
        if old_cidrs.len() != cidrs.len() {
            cidrs.forbidden(e, message);
        } else {
            let changed = old_cidrs.texts().zip(cidrs.texts()).filter(|(old, new)| old != new);
            changed.for_each(|_| cidrs.forbidden(e, message));
        }
    }
    let provider = before.get("providerID");
    if !provider.is_empty() && provider.text() != spec.get("providerID").text() {
        spec.get("providerID").forbidden(e, "node updates may not change providerID except from \"\" to valid");
    }
    if spec.get("configSource").exists() {
        config_source(&spec.get("configSource"), false, e);
    }
    for field in ["assigned", "active", "lastKnownGood"] {
        let config = status.get("config");
        if config.get(field).exists() {
            config_source(&config.get(field), true, e);
        }
    }
    taints(&meta.called("taints", spec.get("taints").value), e);
    if spec.get("externalID").text() != before.get("externalID").text() {
        spec.get("externalID").forbidden(e, "may not be updated");
    }
}

fn config_source(at: &At, in_status: bool, e: &mut Errors) {
    let map = at.get("configMap");
    if !map.exists() {
        return at.invalid_internal(e, "core/v1.NodeConfigSource", "exactly one reference subfield must be non-nil");
    }
    for field in ["uid", "resourceVersion"] {
        if in_status {
            map.get(field).require(e);
        } else if !map.get(field).is_empty() {
            map.get(field).forbidden(e, format!("{field} must not be set in spec"));
        }
    }
    map.get("namespace").required_form(e, names::label);
    map.get("name").required_form(e, names::subdomain);
    map.get("kubeletConfigKey").required_form(e, names::config_key);
}

/// The faults of the status of a node: the same as those of the node.
pub(super) fn status(new: &At, old: &At, e: &mut Errors) {
    validate(new, Some(old), e);
}
