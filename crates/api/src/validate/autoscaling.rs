//! Validation of autoscalers and scales.

use super::{Errors, at::At, names, resource_name as resource};
use crate::Value;

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

/// The faults of an autoscaler.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let zero = old.is_some_and(|old| old.get("spec").get("minReplicas").value == &Value::from(0));
    if min.exists() && min.int() < i64::from(!zero) {
        min.invalid(e, format!("must be greater than or equal to {}", i64::from(!zero)));
    }
    if max.int() == 0 {
        max.required(e, "must be set and greater than 0");
    } else if max.int() < 0 {
        max.invalid(e, "must be greater than or equal to 1");
    }
    if min.exists() && max.int() < min.int() {
        max.invalid_int(e, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.get("scaleTargetRef");
    let kept = old.is_some_and(|old| {
        let was = old.get("spec").get("scaleTargetRef").value;
        ["apiVersion", "kind"].iter().all(|field| was.get(field) == target.value.get(field))
    });
    let versions = match target.get("kind").text() {
        _ if kept => Versions::Any,
        "ReplicationController" => Versions::Core,
        _ => Versions::Grouped,
    };
    reference(&target, versions, e);
    metrics(&spec, e);
    for rules in ["scaleUp", "scaleDown"] {
        let behavior = spec.get("behavior");
        if behavior.get(rules).exists() {
            scaling_rules(&behavior.get(rules), e);
        }
    }
}

/// Which versions a reference may name.
#[derive(Clone, Copy, PartialEq)]
enum Versions {
    Any,
    Core,
    Grouped,
}

fn reference(at: &At, versions: Versions, e: &mut Errors) {
    at.get("kind").required_form(e, names::path_segment);
    at.get("name").required_form(e, names::path_segment);
    let version = at.get("apiVersion");
    let (group, slashes) = (version.text().split_once('/'), version.text().matches('/').count());
    if versions == Versions::Any {
        return;
    }
    if slashes > 1 {
        version.invalid_text(e, format!("unexpected GroupVersion string: {}", version.text()));
    } else if versions == Versions::Grouped && group.is_none_or(|(group, _)| group.is_empty()) {
        version.invalid_text(e, "apiVersion must specify API group");
    }
}

fn metrics(spec: &At, e: &mut Errors) {
    let list = spec.get("metrics");
    list.items().for_each(|metric| self::metric(&metric, e));
    let outside = list.items().any(|metric| ["Object", "External"].contains(&metric.get("type").text()));
    if spec.get("minReplicas").value == &Value::from(0) && !outside {
        list.forbidden(e, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

fn metric(at: &At, e: &mut Errors) {
    let kind = at.get("type");
    if kind.is_empty() {
        kind.required(e, "must specify a metric source type");
    }
    if !TYPES.contains(&kind.text()) {
        kind.unsupported(e, TYPES);
    }
    let present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| at.get(field).exists()).collect();
    if let Some(first) = present.first() {
        source(first, &at.get(first), e);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| *field);
    match expected {
        Some(field) if !at.get(field).exists() => {
            at.get(field).required(e, "must populate information for the given metric source");
        }
        Some(_) => {}
        None => kind.unsupported(e, TYPES),
    }
    if present.len() != 1 {
        for field in present.iter().filter(|field| Some(**field) != expected) {
            at.get(field).forbidden(e, "must populate the given metric source only");
        }
    }
}

fn source(kind: &str, at: &At, e: &mut Errors) {
    let target = at.get("target");
    let (value, average, utilization) =
        (target.get("value"), target.get("averageValue"), target.get("averageUtilization"));
    match kind {
        "object" => {
            reference(&at.get("describedObject"), Versions::Core, e);
            identifier(&at.get("metric"), e);
        }
        "external" | "pods" => identifier(&at.get("metric"), e),
        "containerResource" => {
            let (name, container) = (at.get("name"), at.get("container"));
            if name.is_empty() {
                name.required(e, "must specify a resource name");
            } else {
                resource::of_container(name.text(), &name, e);
            }
            if container.is_empty() {
                container.required(e, "must specify a container");
            }
            container.optional_form(e, names::label);
        }
        _ => {
            if at.get("name").is_empty() {
                at.get("name").required(e, "must specify a resource name");
            }
        }
    }
    metric_target(&target, e);
    match kind {
        "object" if !value.exists() && !average.exists() => {
            average.required(e, "must set either a target value or averageValue");
        }
        "external" => {
            if !value.exists() && !average.exists() {
                average.required(e, "must set either a target value for metric or a per-pod target");
            }
            if value.exists() && average.exists() {
                value.forbidden(e, "may not set both a target value for metric and a per-pod target");
            }
        }
        "pods" if !average.exists() => average.required(e, "must specify a positive target averageValue"),
        "resource" | "containerResource" => {
            if !utilization.exists() && !average.exists() {
                utilization.required(e, "must set either a target raw value or a target utilization");
            }
            if utilization.exists() && average.exists() {
                average.forbidden(e, "may not set both a target raw value and a target utilization");
            }
        }
        _ => {}
    }
}

fn identifier(at: &At, e: &mut Errors) {
    let name = at.get("name");
    if name.is_empty() {
        name.required(e, "must specify a metric name");
    }
    name.optional_form(e, names::path_segment);
}

fn metric_target(at: &At, e: &mut Errors) {
    let kind = at.get("type");
    if kind.is_empty() {
        kind.required(e, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        kind.invalid_text(e, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if at.get(field).exists() && at.get(field).sign() != 1 {
            at.get(field).invalid(e, "must be positive");
        }
    }
    let utilization = at.get("averageUtilization");
    if utilization.exists() && utilization.int() < 1 {
        utilization.invalid(e, "must be greater than 0");
    }
}

fn scaling_rules(at: &At, e: &mut Errors) {
    let window = at.get("stabilizationWindowSeconds");
    if window.int() < 0 {
        window.invalid(e, "must be greater than or equal to zero");
    }
    if window.int() > 3600 {
        window.invalid(e, "must be less than or equal to 3600");
    }
    at.get("selectPolicy").one_of(e, &["Disabled", "Max", "Min"]);
    let policies = at.get("policies");
    if policies.is_empty() {
        policies.required(e, "must specify at least one Policy");
    }
    for policy in policies.items() {
        let (kind, value, period) = (policy.get("type"), policy.get("value"), policy.get("periodSeconds"));
        if !["Percent", "Pods"].contains(&kind.text()) {
            kind.unsupported(e, &["Percent", "Pods"]);
        }
        for number in [&value, &period].into_iter().filter(|number| number.int() <= 0) {
            number.invalid_int(e, "must be greater than zero");
        }
        if period.int() > 1800 {
            period.invalid(e, "must be less than or equal to 1800");
        }
    }
    if at.get("tolerance").sign() < 0 {
        at.get("tolerance").invalid_text(e, "must be greater than or equal to 0");
    }
}

/// The faults of a scale.
pub(super) fn scale(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    spec.get("replicas").nonnegative(e);
}
