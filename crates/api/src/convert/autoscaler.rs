//! Autoscalers: `v1` knows the utilization of CPU alone. It keeps the other metrics, how to scale, and what the status says of
//! them in annotations, in forms of its own.

use serde_json::json;

use crate::{
    Map, Value, decode, json, meta,
    quantity::Quantity,
    schema::{Ty, schema},
    validate::render,
};

const PREFIX: &str = "autoscaling.alpha.kubernetes.io/";
/// The annotations of `v1`: no object has them in `v2`.
const ANNOTATIONS: [&str; 6] =
    ["metrics", "behavior", "scale-down-tolerance", "scale-up-tolerance", "current-metrics", "conditions"];
/// What is wanted of the CPU where nothing is said of any metric.
const UTILIZATION: i64 = 80;

const METRIC: &str = "autoscaling/v1.MetricSpec";
const CURRENT_METRIC: &str = "autoscaling/v1.MetricStatus";
const CONDITION: &str = "autoscaling/v1.HorizontalPodAutoscalerCondition";
const BEHAVIOR: &str = "autoscaling/v2.HorizontalPodAutoscalerBehavior";

const TABLE: &str = include_str!("../../schema/autoscaler.txt");

/// The sources of metrics that are wanted (`target`) or are (`current`): for each the places in `v2` of what `v1` has in the
/// source itself, and the names there.
fn sources(which: &str) -> impl Iterator<Item = (&'static str, impl Iterator<Item = (&'static str, &'static str)>)> {
    let rows = TABLE.lines().filter_map(move |line| line.strip_prefix(which)?.trim_start().split_once(": "));
    rows.map(|(source, fields)| (source, fields.split(' ').filter_map(|field| field.split_once('='))))
}

/// From `v2` to `v1`.
pub(super) fn to_v1(map: &mut Map) {
    drop_annotations(map);
    let mut kept = Vec::new();
    if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
        let (cpu, others): (Vec<Value>, Vec<Value>) =
            taken(spec, "metrics").into_iter().partition(|metric| utilization(metric, "target").is_some());
        if let Some(target) = cpu.first().and_then(|metric| utilization(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage".into(), target.clone());
        }
        kept.push(("metrics", written(METRIC, others.iter().map(|metric| flat(metric, "target")))));
        kept.push(("behavior", spec.remove("behavior").map(|behavior| render::internal(BEHAVIOR, &behavior))));
    }
    if let Some(status) = map.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = taken(status, "currentMetrics");
        if let Some(current) = metrics.iter().rev().find_map(|metric| utilization(metric, "current")) {
            status.insert("currentCPUUtilizationPercentage".into(), current.clone());
        }
        kept.push(("current-metrics", written(CURRENT_METRIC, metrics.iter().map(|metric| flat(metric, "current")))));
        kept.push(("conditions", written(CONDITION, taken(status, "conditions").into_iter())));
    }
    for (name, text) in kept.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        let metadata = meta::object_mut(map.entry("metadata").or_insert_with(|| json!({})));
        let annotations = meta::object_mut(metadata.entry("annotations").or_insert_with(|| json!({})));
        annotations.insert(format!("{PREFIX}{name}"), text.into());
    }
}

/// From `v1` to `v2`.
pub(super) fn to_v2(map: &mut Map) {
    let (metrics, current) = (read(map, "metrics", METRIC), read(map, "current-metrics", CURRENT_METRIC));
    let (conditions, behavior) = (read(map, "conditions", CONDITION), behavior(map));
    drop_annotations(map);
    let spec = meta::object_mut(map.entry("spec").or_insert_with(|| json!({})));
    let mut all: Vec<Value> = metrics.iter().flatten().map(|metric| deep(metric, "target")).collect();
    let target = spec.remove("targetCPUUtilizationPercentage");
    let target = target.or_else(|| all.is_empty().then(|| UTILIZATION.into()));
    all.extend(target.map(|target| cpu(json!({"target": {"type": "Utilization", "averageUtilization": target}}))));
    spec.insert("metrics".into(), all.into());
    spec.extend(behavior.map(|behavior| ("behavior".to_owned(), behavior)));
    let status = meta::object_mut(map.entry("status").or_insert_with(|| json!({})));
    let own = status.remove("currentCPUUtilizationPercentage");
    let own = own.map(|current| vec![cpu(json!({"current": {"averageUtilization": current}}))]);
    let current = current.map(|list| list.iter().map(|metric| deep(metric, "current")).collect());
    status.extend(current.or(own).map(|list: Vec<Value>| ("currentMetrics".to_owned(), list.into())));
    status.extend(conditions.map(|list| ("conditions".to_owned(), list.into())));
}

fn taken(map: &mut Map, name: &str) -> Vec<Value> {
    match map.remove(name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// What a metric says of the utilization of CPU.
fn utilization<'a>(metric: &'a Value, part: &str) -> Option<&'a Value> {
    let cpu = meta::text(metric, &["type"]) == "Resource" && meta::text(metric, &["resource", "name"]) == "cpu";
    meta::at(metric, &["resource", part, "averageUtilization"]).filter(|_| cpu)
}

fn cpu(mut resource: Value) -> Value {
    resource["name"] = "cpu".into();
    json!({"type": "Resource", "resource": resource})
}

/// A list as Go writes it; nothing if it is empty.
fn written(ty: &str, list: impl Iterator<Item = Value>) -> Option<String> {
    let id = schema().type_named(ty)?;
    let list: Vec<Value> = list.filter_map(|item| Some(decode::canonical(id, item).ok()?.object)).collect();
    (!list.is_empty()).then(|| render::external(&Ty::List(Box::new(Ty::Struct(id))), &list.into()))
}

/// The list in an annotation; nothing if there is none, or if it cannot be read.
fn read(map: &Map, name: &str, ty: &str) -> Option<Vec<Value>> {
    let id = schema().type_named(ty)?;
    let Value::Array(list) = annotation(map, name)? else { return None };
    list.into_iter().map(|item| Some(decode::canonical(id, item).ok()?.object)).collect()
}

/// How to scale: the one annotation that has the names of Go.
fn behavior(map: &Map) -> Option<Value> {
    let id = schema().type_named(BEHAVIOR)?;
    let behavior = decode::canonical(id, lower_case(annotation(map, "behavior")?)).ok()?.object;
    Some(behavior).filter(|behavior| !decode::is_zero(behavior))
}

fn annotation(map: &Map, name: &str) -> Option<Value> {
    let text = map.get("metadata")?.get("annotations")?.get(format!("{PREFIX}{name}"))?.as_str()?;
    Some(json::parse(text.as_bytes()).ok()?.0)
}

fn drop_annotations(map: &mut Map) {
    let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        ANNOTATIONS.iter().for_each(|name| drop(annotations.remove(&format!("{PREFIX}{name}"))));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// A metric as `v1` has it.
fn flat(metric: &Value, which: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, fields) in sources(which) {
        if let Some(inside) = metric.get(source) {
            let own = |place: &str| place.split('.').try_fold(inside, |value, step| value.get(step)).cloned();
            let fields = fields.filter_map(|(place, name)| Some((name.to_owned(), own(place)?)));
            out[source] = Value::Object(fields.collect());
        }
    }
    out
}

/// A metric as `v2` has it.
fn deep(metric: &Value, which: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, fields) in sources(which) {
        if let Some(inside) = metric.get(source) {
            let mut own = json!({});
            for (place, name) in fields.filter(|(_, name)| inside.get(name).is_some()) {
                *place.split('.').fold(&mut own, |value, step| &mut value[step]) = inside[name].clone();
            }
            if let Some(target) = own.get_mut("target").and_then(Value::as_object_mut) {
                say_type(source, target);
            }
            out[source] = own;
        }
    }
    out
}

/// The type of a target, which `v1` does not say.
fn say_type(source: &str, target: &mut Map) {
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

/// JSON with names of Go as ours.
fn lower_case(value: Value) -> Value {
    let lower = |name: String| -> String {
        let mut letters = name.chars();
        letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
    };
    match value {
        Value::Object(map) => map.into_iter().map(|(name, value)| (lower(name), lower_case(value))).collect(),
        Value::Array(list) => list.into_iter().map(lower_case).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert;

    fn converted(version: &str, object: &Value) -> Value {
        convert::to(schema().resource("autoscaling", version, "horizontalpodautoscalers").unwrap(), object.clone())
    }

    #[test]
    fn what_v1_does_not_know_is_in_annotations() {
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
        let old = converted("v1", &new);
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
        let back = converted("v2", &old);
        assert_eq!(back["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(back["spec"]["metrics"], json!([metrics[1], metrics[2], metrics[0]]));
        assert_eq!((&back["spec"]["behavior"], &back["status"]), (&new["spec"]["behavior"], &new["status"]));
    }

    #[test]
    fn what_cannot_be_read_is_as_if_it_was_not_there() {
        let old = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"annotations":
            {"autoscaling.alpha.kubernetes.io/metrics": "[{\"type\":1}]", "autoscaling.alpha.kubernetes.io/behavior": "{}"}},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}});
        let new = converted("v2", &old);
        assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!((new["spec"].get("behavior"), new["metadata"].get("annotations")), (None, None));
    }
}
