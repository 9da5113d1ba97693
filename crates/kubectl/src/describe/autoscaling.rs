//! Descriptions of horizontal pod autoscalers.

use api::Value;

use super::{
    DescribeContext,
    description::{Description, format_time, scalar_text},
};
use crate::object::ObjectFields;

/// HorizontalPodAutoscalers.
pub fn autoscaler(context: &DescribeContext, out: &mut Description, hpa: &Value) {
    out.metadata(hpa, true);
    out.field(0, "CreationTimestamp", &format_time(hpa.text("metadata.creationTimestamp")));
    out.field(
        0,
        "Reference",
        &format!("{}/{}", hpa.text("spec.scaleTargetRef.kind"), hpa.text("spec.scaleTargetRef.name")),
    );
    out.raw("Metrics:\t( current / target )\n");
    let current = hpa.list("status.currentMetrics");
    for (at, metric) in hpa.list("spec.metrics").iter().enumerate() {
        let status = current.get(at).filter(|status| status.text("type") == metric.text("type"));
        out.raw(&format!("  {}\n", metric_text(metric, status)));
    }
    let minimum = hpa.integer("spec.minReplicas").map_or("<unset>".to_owned(), |number| number.to_string());
    out.field(0, "Min replicas", &minimum);
    out.field(0, "Max replicas", &hpa.integer("spec.maxReplicas").unwrap_or(0).to_string());
    if let Some(behavior) = hpa.at("spec.behavior") {
        out.raw("Behavior:\n");
        for (field, title) in [("scaleUp", "Scale Up"), ("scaleDown", "Scale Down")] {
            if let Some(rules) = behavior.at(field) {
                scaling_rules(out, title, rules);
            }
        }
    }
    out.raw(&format!(
        "{} pods:\t{} current / {} desired\n",
        hpa.text("spec.scaleTargetRef.kind"),
        hpa.integer("status.currentReplicas").unwrap_or(0),
        hpa.integer("status.desiredReplicas").unwrap_or(0)
    ));
    let conditions = hpa.list("status.conditions");
    if !conditions.is_empty() {
        out.raw("Conditions:\n  Type\tStatus\tReason\tMessage\n  ----\t------\t------\t-------\n");
        for condition in conditions {
            out.raw(&format!(
                "  {}\t{}\t{}\t{}\n",
                condition.text("type"),
                condition.text("status"),
                condition.text("reason"),
                condition.text("message")
            ));
        }
    }
    context.events(out, hpa);
}

fn current_value(status: Option<&Value>, path: &str) -> String {
    status.and_then(|status| status.at(path)).map_or("<unknown>".to_owned(), |value| scalar_text(Some(value)))
}

fn metric_text(metric: &Value, status: Option<&Value>) -> String {
    let quote = |text: &str| api::json::go_quote(text);
    match metric.text("type") {
        "External" => {
            let target = metric.at("external.target");
            let name = quote(metric.text("external.metric.name"));
            match target.and_then(|target| target.at("averageValue")) {
                Some(average) => format!(
                    "{name} (target average value):\t{} / {}",
                    current_value(status, "external.current.averageValue"),
                    scalar_text(Some(average))
                ),
                None => format!(
                    "{name} (target value):\t{} / {}",
                    current_value(status, "external.current.value"),
                    scalar_text(metric.at("external.target.value"))
                ),
            }
        }
        "Pods" => format!(
            "{} on pods:\t{} / {}",
            quote(metric.text("pods.metric.name")),
            current_value(status, "pods.current.averageValue"),
            scalar_text(metric.at("pods.target.averageValue"))
        ),
        "Object" => {
            let (name, object) = (
                quote(metric.text("object.metric.name")),
                format!(
                    "{}/{}",
                    metric.text("object.describedObject.kind"),
                    metric.text("object.describedObject.name")
                ),
            );
            match metric.at("object.target.averageValue") {
                Some(average) => format!(
                    "{name} on {object} (target average value):\t{} / {}",
                    current_value(status, "object.current.averageValue"),
                    scalar_text(Some(average))
                ),
                None => format!(
                    "{name} on {object} (target value):\t{} / {}",
                    current_value(status, "object.current.value"),
                    scalar_text(metric.at("object.target.value"))
                ),
            }
        }
        kind => resource_text(metric, status, kind == "ContainerResource"),
    }
}

fn resource_text(metric: &Value, status: Option<&Value>, container: bool) -> String {
    let field = if container { "containerResource" } else { "resource" };
    let part = |path: &str| format!("{field}.{path}");
    let of = if container {
        format!(" of container {}", api::json::go_quote(metric.text(&part("container"))))
    } else {
        String::new()
    };
    let name = metric.text(&part("name"));
    if let Some(average) = metric.at(&part("target.averageValue")) {
        return format!(
            "resource {name}{of} on pods:\t{} / {}",
            current_value(status, &part("current.averageValue")),
            scalar_text(Some(average))
        );
    }
    let current = match status.and_then(|status| status.integer(&part("current.averageUtilization"))) {
        Some(percent) => format!("{percent}% ({})", current_value(status, &part("current.averageValue"))),
        None => "<unknown>".to_owned(),
    };
    let target =
        metric.integer(&part("target.averageUtilization")).map_or("<auto>".to_owned(), |percent| format!("{percent}%"));
    format!("resource {name}{of} on pods  (as a percentage of request):\t{current} / {target}")
}

fn scaling_rules(out: &mut Description, title: &str, rules: &Value) {
    out.raw(&format!("  {title}:\n"));
    if let Some(window) = rules.integer("stabilizationWindowSeconds") {
        out.raw(&format!("    Stabilization Window: {window} seconds\n"));
    }
    let policies = rules.list("policies");
    if policies.is_empty() {
        return;
    }
    let select = rules.text("selectPolicy");
    out.raw(&format!("    Select Policy: {}\n    Policies:\n", if select.is_empty() { "Max" } else { select }));
    for policy in policies {
        out.raw(&format!(
            "      - Type: {}\tValue: {}\tPeriod: {} seconds\n",
            policy.text("type"),
            policy.integer("value").unwrap_or(0),
            policy.integer("periodSeconds").unwrap_or(0)
        ));
    }
}
