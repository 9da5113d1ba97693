//! Conversion of HorizontalPodAutoscalers: `v1` has the CPU utilization only, and keeps other metrics, the behavior and
//! their status in annotations.

use serde_json::json;

use crate::{
    Map, Value, decode, json, meta,
    quantity::Quantity,
    render,
    schema::{FieldType, schema},
};

const ANNOTATION_PREFIX: &str = "autoscaling.alpha.kubernetes.io/";
/// The annotations of `v1`, absent in `v2`.
const ANNOTATIONS: [&str; 6] =
    ["metrics", "behavior", "scale-down-tolerance", "scale-up-tolerance", "current-metrics", "conditions"];
/// The target CPU utilization when no metric is given.
const DEFAULT_CPU_UTILIZATION: i64 = 80;

const METRIC: &str = "autoscaling/v1.MetricSpec";
const CURRENT_METRIC: &str = "autoscaling/v1.MetricStatus";
const CONDITION: &str = "autoscaling/v1.HorizontalPodAutoscalerCondition";
const BEHAVIOR: &str = "autoscaling/v2.HorizontalPodAutoscalerBehavior";

const METRIC_TABLE: &str = include_str!("../../schema/autoscaler.txt");

/// The metric sources of a spec (`target`) or status (`current`): for each, the `v2` field paths and the flat `v1`
/// names.
fn metric_sources(
    which: &str,
) -> impl Iterator<Item = (&'static str, impl Iterator<Item = (&'static str, &'static str)>)> {
    let rows = METRIC_TABLE.lines().filter_map(move |line| line.strip_prefix(which)?.trim_start().split_once(": "));
    rows.map(|(source, fields)| (source, fields.split(' ').filter_map(|field| field.split_once('='))))
}

/// From `v2` to `v1`.
pub(super) fn to_v1(map: &mut Map) {
    drop_annotations(map);
    let mut kept = Vec::new();
    if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
        let (cpu, others): (Vec<Value>, Vec<Value>) =
            take_list(spec, "metrics").into_iter().partition(|metric| cpu_utilization(metric, "target").is_some());
        if let Some(target) = cpu.first().and_then(|metric| cpu_utilization(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage".into(), target.clone());
        }
        kept.push(("metrics", encode_list(METRIC, others.iter().map(|metric| to_v1_metric(metric, "target")))));
        kept.push(("behavior", spec.remove("behavior").map(|behavior| render::render_internal(BEHAVIOR, &behavior))));
    }
    if let Some(status) = map.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = take_list(status, "currentMetrics");
        if let Some(current) = metrics.iter().rev().find_map(|metric| cpu_utilization(metric, "current")) {
            status.insert("currentCPUUtilizationPercentage".into(), current.clone());
        }
        kept.push((
            "current-metrics",
            encode_list(CURRENT_METRIC, metrics.iter().map(|metric| to_v1_metric(metric, "current"))),
        ));
        kept.push(("conditions", encode_list(CONDITION, take_list(status, "conditions").into_iter())));
    }
    for (name, text) in kept.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        let metadata = meta::object_mut(map.entry("metadata").or_insert_with(|| json!({})));
        let annotations = meta::object_mut(metadata.entry("annotations").or_insert_with(|| json!({})));
        annotations.insert(format!("{ANNOTATION_PREFIX}{name}"), text.into());
    }
}

/// From `v1` to `v2`.
pub(super) fn to_v2(map: &mut Map) {
    let (metrics, current) =
        (read_list_annotation(map, "metrics", METRIC), read_list_annotation(map, "current-metrics", CURRENT_METRIC));
    let (conditions, behavior) = (read_list_annotation(map, "conditions", CONDITION), read_behavior_annotation(map));
    drop_annotations(map);
    let spec = meta::object_mut(map.entry("spec").or_insert_with(|| json!({})));
    let mut all: Vec<Value> = metrics.iter().flatten().map(|metric| to_v2_metric(metric, "target")).collect();
    let target = spec.remove("targetCPUUtilizationPercentage");
    let target = target.or_else(|| all.is_empty().then(|| DEFAULT_CPU_UTILIZATION.into()));
    all.extend(
        target.map(|target| cpu_metric(json!({"target": {"type": "Utilization", "averageUtilization": target}}))),
    );
    spec.insert("metrics".into(), all.into());
    spec.extend(behavior.map(|behavior| ("behavior".to_owned(), behavior)));
    let status = meta::object_mut(map.entry("status").or_insert_with(|| json!({})));
    let own = status.remove("currentCPUUtilizationPercentage");
    let own = own.map(|current| vec![cpu_metric(json!({"current": {"averageUtilization": current}}))]);
    let current = current.map(|list| list.iter().map(|metric| to_v2_metric(metric, "current")).collect());
    status.extend(current.or(own).map(|list: Vec<Value>| ("currentMetrics".to_owned(), list.into())));
    status.extend(conditions.map(|list| ("conditions".to_owned(), list.into())));
}

fn take_list(map: &mut Map, name: &str) -> Vec<Value> {
    match map.remove(name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Returns the CPU utilization of a resource metric.
fn cpu_utilization<'a>(metric: &'a Value, part: &str) -> Option<&'a Value> {
    let cpu =
        meta::string_at(metric, &["type"]) == "Resource" && meta::string_at(metric, &["resource", "name"]) == "cpu";
    meta::value_at(metric, &["resource", part, "averageUtilization"]).filter(|_| cpu)
}

fn cpu_metric(mut resource: Value) -> Value {
    resource["name"] = "cpu".into();
    json!({"type": "Resource", "resource": resource})
}

/// Encodes a list as Go does; `None` if it is empty.
fn encode_list(ty: &str, list: impl Iterator<Item = Value>) -> Option<String> {
    let id = schema().type_named(ty)?;
    let list: Vec<Value> = list.filter_map(|item| Some(decode::canonicalize(id, item).ok()?.object)).collect();
    (!list.is_empty()).then(|| render::render_external(&FieldType::List(Box::new(FieldType::Struct(id))), &list.into()))
}

/// Reads the list in an annotation; `None` if it is absent or malformed.
fn read_list_annotation(map: &Map, name: &str, ty: &str) -> Option<Vec<Value>> {
    let id = schema().type_named(ty)?;
    let Value::Array(list) = read_annotation(map, name)? else { return None };
    list.into_iter().map(|item| Some(decode::canonicalize(id, item).ok()?.object)).collect()
}

/// Reads the behavior annotation, which has Go field names.
fn read_behavior_annotation(map: &Map) -> Option<Value> {
    let id = schema().type_named(BEHAVIOR)?;
    let behavior = decode::canonicalize(id, lower_field_names(read_annotation(map, "behavior")?)).ok()?.object;
    Some(behavior).filter(|behavior| !decode::is_zero(behavior))
}

fn read_annotation(map: &Map, name: &str) -> Option<Value> {
    let text = map.get("metadata")?.get("annotations")?.get(format!("{ANNOTATION_PREFIX}{name}"))?.as_str()?;
    Some(json::parse(text.as_bytes()).ok()?.0)
}

fn drop_annotations(map: &mut Map) {
    let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        ANNOTATIONS.iter().for_each(|name| drop(annotations.remove(&format!("{ANNOTATION_PREFIX}{name}"))));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Converts a metric to `v1`.
fn to_v1_metric(metric: &Value, which: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, fields) in metric_sources(which) {
        if let Some(inside) = metric.get(source) {
            let own = |place: &str| place.split('.').try_fold(inside, |value, step| value.get(step)).cloned();
            let fields = fields.filter_map(|(place, name)| Some((name.to_owned(), own(place)?)));
            out[source] = Value::Object(fields.collect());
        }
    }
    out
}

/// Converts a metric to `v2`.
fn to_v2_metric(metric: &Value, which: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, fields) in metric_sources(which) {
        if let Some(inside) = metric.get(source) {
            let mut own = json!({});
            for (place, name) in fields.filter(|(_, name)| inside.get(name).is_some()) {
                *place.split('.').fold(&mut own, |value, step| &mut value[step]) = inside[name].clone();
            }
            if let Some(target) = own.get_mut("target").and_then(Value::as_object_mut) {
                set_target_type(source, target);
            }
            out[source] = own;
        }
    }
    out
}

/// Sets the target type, which `v1` lacks.
fn set_target_type(source: &str, target: &mut Map) {
    let kind = match source {
        "object" if !target.contains_key("averageValue") => "Value",
        "external" if target.contains_key("value") => "Value",
        _ if target.contains_key("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    let nothing = |value: &Value| value.as_str().and_then(Quantity::parse).is_some_and(Quantity::is_zero);
    if source == "object" && kind == "AverageValue" && target.get("value").is_some_and(nothing) {
        target.remove("value");
    }
    target.insert("type".into(), kind.into());
}

/// Lower-cases the first letter of Go field names.
fn lower_field_names(value: Value) -> Value {
    let lower = |name: String| -> String {
        let mut letters = name.chars();
        letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
    };
    match value {
        Value::Object(map) => map.into_iter().map(|(name, value)| (lower(name), lower_field_names(value))).collect(),
        Value::Array(list) => list.into_iter().map(lower_field_names).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert;

    fn convert_autoscaler(version: &str, object: &Value) -> Value {
        convert::convert_to(
            schema().resource("autoscaling", version, "horizontalpodautoscalers").unwrap(),
            object.clone(),
        )
    }

    #[test]
    fn fields_unknown_to_v1_are_kept_in_annotations() {
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "hits"},
                "target": {"type": "AverageValue", "averageValue": "2"}}},
            {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}}}]);
        let new = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "annotations": {"a": "b", "autoscaling.alpha.kubernetes.io/conditions": "stale"}},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": metrics,
                "behavior": {"scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}}},
            "status": {"currentReplicas": 1, "desiredReplicas": 2, "currentMetrics": [{"type": "Resource", "resource":
                {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "1"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let old = convert_autoscaler("v1", &new);
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(old["status"]["currentCPUUtilizationPercentage"], 40);
        let want = json!({"a": "b",
            "autoscaling.alpha.kubernetes.io/metrics": concat!(
                r#"[{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"hits","targetValue":"0","averageValue":"2"}},"#,
                r#"{"type":"External","external":{"metricName":"queue","targetValue":"5"}}]"#),
            "autoscaling.alpha.kubernetes.io/behavior": concat!(
                r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"#,
                r#""Tolerance":null},"ScaleDown":null}"#),
            "autoscaling.alpha.kubernetes.io/current-metrics":
                r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":40,"currentAverageValue":"1"}}]"#,
            "autoscaling.alpha.kubernetes.io/conditions":
                r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]"#});
        assert_eq!(old["metadata"]["annotations"], want);
        let back = convert_autoscaler("v2", &old);
        assert_eq!(back["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(back["spec"]["metrics"], json!([metrics[1], metrics[2], metrics[0]]));
        assert_eq!((&back["spec"]["behavior"], &back["status"]), (&new["spec"]["behavior"], &new["status"]));
    }

    #[test]
    fn malformed_annotations_are_ignored() {
        let old = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"annotations":
            {"autoscaling.alpha.kubernetes.io/metrics": "[{\"type\":1}]", "autoscaling.alpha.kubernetes.io/behavior": "{}"}},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}});
        let new = convert_autoscaler("v2", &old);
        assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!((new["spec"].get("behavior"), new["metadata"].get("annotations")), (None, None));
    }
}
