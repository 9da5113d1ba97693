//! Computed defaults of groups other than core.

use serde_json::json;

use super::string_field;
use crate::{Map, Value, decode, meta};

/// Sets the labels of an object without any.
pub(super) fn default_labels(map: &mut Map, labels: Value) {
    let metadata = meta::object_mut(map.entry("metadata").or_insert_with(|| json!({})));
    if metadata.get("labels").is_none_or(decode::is_zero) {
        metadata.insert("labels".into(), labels);
    }
}

/// Sets the unset parameters of a rolling update.
fn default_rolling_update(map: &mut Map, parameters: [(&str, Value); 2]) {
    if string_field(map, "type") == "RollingUpdate" {
        let rolling = meta::object_mut(map.entry("rollingUpdate").or_insert_with(|| json!({})));
        for (name, value) in parameters {
            rolling.entry(name).or_insert(value);
        }
    }
}

pub(super) fn default_deployment_strategy(map: &mut Map) {
    default_rolling_update(map, [("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())]);
}

/// Starts the template generation annotation, a field in removed versions.
pub(super) fn default_template_generation(map: &mut Map) {
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.entry(meta::TEMPLATE_GENERATION_ANNOTATION).or_insert_with(|| "0".into());
    }
}

pub(super) fn default_daemon_set_strategy(map: &mut Map) {
    default_rolling_update(map, [("maxUnavailable", 1.into()), ("maxSurge", 0.into())]);
}

/// An unset strategy becomes a rolling update from partition 0; an explicit one keeps its fields.
pub(super) fn default_stateful_set_strategy(map: &mut Map) {
    if string_field(map, "type").is_empty() {
        map.insert("type".into(), "RollingUpdate".into());
        map.entry("rollingUpdate").or_insert_with(|| json!({}));
    }
    if string_field(map, "type") == "RollingUpdate"
        && let Some(rolling) = map.get_mut("rollingUpdate").and_then(Value::as_object_mut)
    {
        rolling.entry("partition").or_insert(0.into());
    }
}

/// With a limit per index, the job's own limit is unbounded.
pub(super) fn default_backoff_limit(map: &mut Map) {
    if map.contains_key("backoffLimitPerIndex") {
        map.entry("backoffLimit").or_insert(i32::MAX.into());
    }
}

pub(super) fn default_job_spec(map: &mut Map) {
    if !map.contains_key("completions") && !map.contains_key("parallelism") {
        map.insert("completions".into(), 1.into());
    }
    map.entry("parallelism").or_insert(1.into());
    let replacement = if map.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    map.entry("podReplacementPolicy").or_insert(replacement.into());
    let rules = map.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let patterns = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if string_field(pattern, "status").is_empty() {
                pattern.insert("status".into(), "True".into());
            }
        }
    }
}

/// Defaults the labels to those of the template.
///
/// A Job whose selector is yet to be generated is left to its strategy, which adds the generated labels too: upstream's
/// labels and those of the template are one map.
pub(super) fn default_job_labels(map: &mut Map) {
    let Some(spec) = map.get("spec").filter(|spec| spec.get("selector").is_some() || spec["manualSelector"] == true)
    else {
        return;
    };
    let template = spec.get("template");
    let labels = template.and_then(|template| template.get("metadata")).and_then(|meta| meta.get("labels"));
    if let Some(labels) = labels.cloned() {
        default_labels(map, labels);
    }
}

/// Defaults the metrics to 80 % CPU utilization, and completes a behavior.
pub(super) fn default_autoscaler(map: &mut Map) {
    if map.get("metrics").is_none_or(decode::is_zero) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        map.insert("metrics".into(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    let Some(behavior) = map.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let all = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let four = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [four, all]});
    let down = json!({"selectPolicy": "Max", "policies": [all]});
    for (name, rules) in [("scaleUp", up), ("scaleDown", down)] {
        let given = meta::object_mut(behavior.entry(name).or_insert_with(|| json!({})));
        let Value::Object(rules) = rules else { continue };
        rules.into_iter().for_each(|(field, value)| {
            given.entry(field).or_insert(value);
        });
    }
}

pub(super) fn default_subject(map: &mut Map) {
    if matches!(string_field(map, "kind"), "User" | "Group") && string_field(map, "apiGroup").is_empty() {
        map.insert("apiGroup".into(), "rbac.authorization.k8s.io".into());
    }
}

pub(super) fn default_policy_types(map: &mut Map) {
    if map.get("policyTypes").is_none_or(decode::is_zero) {
        let egress = map.get("egress").is_some_and(|rules| !decode::is_zero(rules));
        map.insert("policyTypes".into(), if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

/// Defaults to exactly one device.
pub(super) fn default_device_request(map: &mut Map) {
    if string_field(map, "allocationMode").is_empty() {
        map.insert("allocationMode".into(), "ExactCount".into());
    }
    if string_field(map, "allocationMode") == "ExactCount" && map.get("count").is_none_or(decode::is_zero) {
        map.insert("count".into(), 1.into());
    }
}

/// As [`default_device_request`], unless the request is a list of alternatives.
pub(super) fn default_flat_device_request(map: &mut Map) {
    if !string_field(map, "deviceClassName").is_empty() {
        default_device_request(map);
    }
}

/// Derives the names from the kind, and records the storage version.
pub(super) fn default_custom_resource_definition(map: &mut Map) {
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let names = meta::object_mut(spec.entry("names").or_insert_with(|| json!({})));
    let kind = string_field(names, "kind").to_owned();
    if string_field(names, "singular").is_empty() && !kind.is_empty() {
        names.insert("singular".into(), kind.to_lowercase().into());
    }
    if string_field(names, "listKind").is_empty() && !kind.is_empty() {
        names.insert("listKind".into(), format!("{kind}List").into());
    }
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let versions = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    let stored = versions.iter().find(|version| version["storage"] == true).map(|version| version["name"].clone());
    let status = meta::object_mut(map.entry("status").or_insert_with(|| json!({})));
    if let Some(stored) = stored.filter(|_| status.get("storedVersions").is_none_or(decode::is_zero)) {
        status.insert("storedVersions".into(), json!([stored]));
    }
}
