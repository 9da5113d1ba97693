//! Validation of workload controllers and autoscalers beyond the rule tables.

use super::{prelude::*, resource_name as resource, selector};
use crate::selector::LabelSelector;

const SELECTOR_MISMATCH: &str = "`selector` does not match template `labels`";
const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// Validates selector and template of a Deployment or ReplicaSet.
pub fn validate_selected_template(spec: &FieldCursor, e: &mut ErrorList) {
    let selector = spec.get("selector");
    validate_required_selector(&selector, "deployment", e);
    match selector::parse_selector(selector.value) {
        Err(()) => selector.invalid_struct(e, LABEL_SELECTOR, "invalid label selector"),
        Ok(parsed) => {
            let template = spec.get("template");
            validate_labels_match(&template, parsed.as_ref(), e);
            check_block("ReplicaTemplate", &template, e);
        }
    }
}

fn validate_required_selector(at: &FieldCursor, kind: &str, e: &mut ErrorList) {
    if !at.exists() {
        return at.required(e, "");
    }
    selector::check_label_selector(at, false, e);
    reject_empty_selector(at, kind, e);
}

fn reject_empty_selector(at: &FieldCursor, kind: &str, e: &mut ErrorList) {
    if at.get("matchLabels").is_empty() && at.get("matchExpressions").is_empty() {
        at.invalid_struct(e, LABEL_SELECTOR, format!("empty selector is invalid for {kind}"));
    }
}

/// Requires the selector to match the template's labels; an absent selector matches nothing.
fn validate_labels_match(template: &FieldCursor, selector: Option<&LabelSelector>, e: &mut ErrorList) {
    let meta = template.get("metadata");
    let labels = meta.get("labels");
    let right = selector.is_some_and(|selector| selector.is_empty() || selector.matches(labels.value));
    if !right {
        labels.invalid(e, SELECTOR_MISMATCH);
    }
}

/// Rejects a rolling update with neither surge nor unavailability.
pub fn validate_some_progress(rolling: &FieldCursor, e: &mut ErrorList) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    if int_or_percent_value(&unavailable) == 0 && int_or_percent_value(&surge) == 0 {
        unavailable.invalid_as(e, value_or_zero(&unavailable), "may not be 0 when `maxSurge` is 0");
    }
}

pub fn validate_daemon_selector(spec: &FieldCursor, e: &mut ErrorList) {
    let selector = spec.get("selector");
    if let Ok(parsed) = selector::parse_selector(selector.value) {
        validate_labels_match(&spec.get("template"), parsed.as_ref(), e);
    }
    if selector.exists() {
        reject_empty_selector(&selector, "daemonset", e);
    }
}

/// Requires either surge or unavailability of a DaemonSet's rolling update.
pub fn validate_surge_or_unavailable(rolling: &FieldCursor, e: &mut ErrorList) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    match (int_or_percent_value(&unavailable) != 0, int_or_percent_value(&surge) != 0) {
        (true, true) => surge.invalid_as(e, value_or_zero(&surge), "may not be set when maxUnavailable is non-zero"),
        (false, false) => unavailable.required(e, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// Validates selector and template of a StatefulSet.
pub fn validate_stateful_template(spec: &FieldCursor, e: &mut ErrorList) {
    let selector = spec.get("selector");
    validate_required_selector(&selector, "statefulset", e);
    match selector::parse_selector(selector.value) {
        Err(()) => selector.invalid_struct(e, LABEL_SELECTOR, ""),
        Ok(parsed) => {
            let adjusted = adjusted_template(spec);
            let template = spec.get("template").with_value(&adjusted);
            validate_labels_match(&template, parsed.as_ref(), e);
            check_block("StatefulTemplate", &template, e);
        }
    }
}

/// The template as pods get it: with volumes from the claim templates, without host names.
fn adjusted_template(spec: &FieldCursor) -> Value {
    let mut template = spec.get("template").value.clone();
    let claims = spec.get("volumeClaimTemplates");
    let Some(inner) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    inner.remove("subdomain");
    inner.remove("hostname");
    if !claims.is_empty() {
        let names: Vec<&str> = claims.items().map(|claim| claim.get("metadata").get("name").text()).collect();
        let mut volumes: Vec<Value> = names
            .iter()
            .map(|name| serde_json::json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        let own = inner.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        volumes.extend(own.into_iter().filter(|volume| !names.contains(&volume["name"].as_str().unwrap_or_default())));
        inner.insert("volumes".to_owned(), volumes.into());
    }
    template
}

/// Validates a StatefulSet spec update.
pub fn validate_stateful_change(spec: &FieldCursor, e: &mut ErrorList) {
    const MUTABLE: &str = "replicas template updateStrategy minReadySeconds ordinals \
        revisionHistoryLimit persistentVolumeClaimRetentionPolicy";
    let fixed = |at: &FieldCursor| {
        let mut value = at.value.clone();
        value.as_object_mut().into_iter().for_each(|map| MUTABLE.split(' ').for_each(|field| drop(map.remove(field))));
        value
    };
    if !semantically_equal(&fixed(spec), &fixed(&spec.old_cursor())) {
        let message = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
            'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        spec.forbidden(e, message);
    }
}

/// Requires the selector of a ReplicationController to match the template's labels.
pub fn validate_controller_selector(spec: &FieldCursor, e: &mut ErrorList) {
    let template = spec.get("template");
    let meta = template.get("metadata");
    let labels = meta.get("labels");
    if spec.get("selector").entries().any(|(key, value)| labels.get(key).value != value.value) {
        labels.invalid(e, SELECTOR_MISMATCH);
    }
}

/// Validates an int-or-percent value.
pub fn validate_amount(at: &FieldCursor, e: &mut ErrorList) {
    if at.value.is_string() { at.check_format(e, names::check_percent) } else { at.require_nonnegative(e) }
}

fn parse_percent(at: &FieldCursor) -> Option<i64> {
    let text = at.value.as_str().filter(|text| names::check_percent(text).is_empty())?;
    text.trim_end_matches('%').parse().ok()
}

/// The integer or percentage. Upstream: `getIntOrPercentValue`.
fn int_or_percent_value(at: &FieldCursor) -> i64 {
    match at.value {
        Value::String(text) => parse_percent(at).unwrap_or_else(|| text.parse().unwrap_or(0)),
        value => value.as_i64().unwrap_or(0),
    }
}

/// Rejects more than 100%.
pub fn validate_at_most_all(at: &FieldCursor, e: &mut ErrorList) {
    if parse_percent(at).is_some_and(|percent| percent > 100) {
        at.invalid(e, "must not be greater than 100%");
    }
}

/// The value; 0 if absent.
fn value_or_zero(at: &FieldCursor) -> BadValue {
    if at.exists() { at.value.clone().into() } else { 0.into() }
}

pub fn validate_not_none(at: &FieldCursor, e: &mut ErrorList) {
    if int_or_percent_value(at) == 0 {
        at.invalid_as(e, value_or_zero(at), "cannot be 0");
    }
}

/// Type, field and rule block of metric sources.
const METRIC_SOURCES: [(&str, &str, &str); 5] = [
    ("Object", "object", "ObjectMetric"),
    ("External", "external", "ExternalMetric"),
    ("Pods", "pods", "PodsMetric"),
    ("Resource", "resource", "ResourceMetric"),
    ("ContainerResource", "containerResource", "ContainerMetric"),
];

pub fn validate_scaling_to_zero(list: &FieldCursor, e: &mut ErrorList) {
    let outside = list.items().any(|metric| ["Object", "External"].contains(&metric.text_at("type")));
    if list.ancestor(1).get("minReplicas").int() == 0 && !outside {
        list.forbidden(e, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

/// Validates the API group of the scale target; an unchanged target is tolerated.
pub fn validate_target_version(target: &FieldCursor, e: &mut ErrorList) {
    if target.is_update() && ["apiVersion", "kind"].iter().all(|field| target.old.get(field) == target.value.get(field))
    {
        return;
    }
    let version = target.get("apiVersion");
    let group = version.text().split_once('/').map_or("", |(group, _)| group);
    validate_group_version(&version, e);
    let whole = version.text().matches('/').count() <= 1;
    if whole && target.text_at("kind") != "ReplicationController" && group.is_empty() {
        version.invalid_text(e, "apiVersion must specify API group");
    }
}

pub fn validate_group_version(version: &FieldCursor, e: &mut ErrorList) {
    if version.text().matches('/').count() > 1 {
        version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
    }
}

/// Requires exactly the metric source that the type names.
pub fn validate_metric_source(at: &FieldCursor, e: &mut ErrorList) {
    let kind = at.get("type");
    let given = |field: &str| at.value.get(field).is_some();
    let present = || METRIC_SOURCES.iter().filter(|(_, field, _)| given(field));
    if let Some((_, field, rules)) = present().next() {
        check_block(rules, &at.get(field), e);
    }
    let expected = METRIC_SOURCES.iter().find(|(name, ..)| *name == kind.text()).map(|(_, field, _)| *field);
    match expected {
        Some(field) if !given(field) => {
            at.get(field).required(e, "must populate information for the given metric source");
        }
        Some(_) => {}
        None => kind.not_supported(e, &["ContainerResource", "External", "Object", "Pods", "Resource"]),
    }
    if present().count() != 1 {
        for (_, field, _) in present().filter(|(_, field, _)| Some(*field) != expected) {
            at.get(field).forbidden(e, "must populate the given metric source only");
        }
    }
}

pub fn validate_name_of_container_resource(name: &FieldCursor, e: &mut ErrorList) {
    resource::validate_container_resource_name(name.text(), name, e);
}
