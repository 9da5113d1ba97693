//! Printer functions for cells that the expressions cannot describe, called as `@name` in the table.

use std::collections::BTreeSet;

use super::{
    join_truncated, network_cells, pod_cells,
    printed_object::{PrintedObject, format_quantity},
};
use crate::{Value, meta, time};

/// Computes a cell, or several as an array.
pub(super) type PrinterFunction = fn(&PrintedObject) -> Value;

const FUNCTIONS: &[(&str, PrinterFunction)] = &[
    ("pod_summary", pod_cells::pod_summary_cells),
    ("pod_ended", pod_cells::pod_row_conditions),
    ("readiness_gates", pod_cells::readiness_gates_cell),
    ("external_address", network_cells::service_addresses_cell),
    ("endpoints", network_cells::endpoints_cell),
    ("hosts", network_cells::ingress_hosts_cell),
    ("balancers", network_cells::ingress_addresses_cell),
    ("node_status", node_status_cell),
    ("node_roles", node_roles_cell),
    ("internal_address", |row| node_address_cell(row, "InternalIP")),
    ("external_node_address", |row| node_address_cell(row, "ExternalIP")),
    ("quota", quota_cells),
    ("component", component_status_cells),
    ("event_source", event_source_cell),
    ("event_message", |row| row.string_at("message").trim().into()),
    ("controller", controller_cell),
    ("job_duration", job_duration_cell),
    ("metrics", metrics_cell),
    ("signing_state", certificate_condition_cell),
    ("parameter_selector", parameter_selector_cell),
    ("available", available_cell),
    ("claim_state", claim_state_cell),
    ("pool_status", pool_status_cells),
];

/// Returns a function by name.
pub(super) fn find_function(name: &str) -> PrinterFunction {
    let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("cells call an unknown function {name:?}")).1
}

fn node_status_cell(row: &PrintedObject) -> Value {
    // The last condition of a type counts.
    let ready = row.list_at("status.conditions").rfind(|condition| condition.string_at("type") == "Ready");
    let status = match ready.map(|condition| condition.string_at("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    [status, if row.is_true("spec.unschedulable") { ",SchedulingDisabled" } else { "" }].concat().into()
}

fn node_roles_cell(row: &PrintedObject) -> Value {
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let labels = row.value_at("metadata.labels").and_then(Value::as_object).into_iter().flatten();
    let roles: BTreeSet<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",").into() }
}

fn node_address_cell(row: &PrintedObject, kind: &str) -> Value {
    let found = row.list_at("status.addresses").find(|address| address.string_at("type") == kind);
    found.map_or("<none>", |address| address.string_at("address")).into()
}

/// Used and hard limits: requests, then limits.
fn quota_cells(row: &PrintedObject) -> Value {
    let hard = row.value_at("status.hard").and_then(Value::as_object);
    let mut entries: Vec<(&String, &Value)> = hard.into_iter().flatten().collect();
    entries.sort_by_key(|(resource, _)| *resource);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in entries {
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        let used = format_quantity(meta::value_at(row.object, &["status", "used", resource]));
        column.push(format!("{resource}: {used}/{}", format_quantity(Some(hard))));
    }
    Value::Array(vec![requests.join(", ").into(), limits.join(", ").into()])
}

fn component_status_cells(row: &PrintedObject) -> Value {
    let healthy = row.list_at("conditions").find(|condition| condition.string_at("type") == "Healthy");
    let status = match healthy.map(|condition| condition.string_at("status") == "True") {
        Some(true) => "Healthy",
        Some(false) => "Unhealthy",
        None => "Unknown",
    };
    let field = |name: &str| healthy.map_or("", |condition| condition.string_at(name));
    Value::from(vec![status, field("message"), field("error")])
}

fn event_source_cell(row: &PrintedObject) -> Value {
    let first = |paths: [&str; 2]| paths.into_iter().map(|path| row.string_at(path)).find(|text| !text.is_empty());
    let component = first(["source.component", "reportingComponent"]).unwrap_or_default();
    match first(["source.host", "reportingInstance"]) {
        Some(instance) => format!("{component}, {instance}").into(),
        None => component.into(),
    }
}

fn controller_cell(row: &PrintedObject) -> Value {
    let controller = row.list_at("metadata.ownerReferences").find(|owner| owner.is_true("controller"));
    controller.map_or("<none>".into(), |owner| {
        let group =
            owner.string_at("apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        format!("{}{}/{}", owner.string_at("kind").to_lowercase(), group.to_lowercase(), owner.string_at("name")).into()
    })
}

fn job_duration_cell(row: &PrintedObject) -> Value {
    let Some(start) = time::parse(row.string_at("status.startTime")) else { return "".into() };
    let end = time::parse(row.string_at("status.completionTime")).unwrap_or(row.now);
    time::human_duration(end.as_second() - start.as_second()).into()
}

fn metrics_cell(row: &PrintedObject) -> Value {
    let current: Vec<PrintedObject> = row.list_at("status.currentMetrics").collect();
    let nothing = row.with_object(&Value::Null);
    let shown: Vec<String> = row
        .list_at("spec.metrics")
        .enumerate()
        .map(|(at, spec)| format_metric(&spec, current.get(at).unwrap_or(&nothing)))
        .collect();
    if shown.is_empty() { "<none>".into() } else { join_truncated(&shown, 2, ", ").into() }
}

/// Formats `current/target` of one metric.
fn format_metric(spec: &PrintedObject, status: &PrintedObject) -> String {
    let (field, named) = match spec.string_at("type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = spec.with_object(&spec.object[field]["target"]);
    let current = status.value_at(field).map(|of| status.with_object(&of["current"]));
    let average = |zero| {
        format!("{}/{}", format_current_value(current, "averageValue", zero), target.quantity_at("averageValue"))
    };
    if named {
        return format!(
            "{}: {}",
            spec.with_object(&spec.object[field]).string_at("name"),
            format_resource_metric(&target, current)
        );
    }
    match target.value_at("averageValue") {
        _ if field == "pods" => average(true),
        Some(_) => format!("{} (avg)", average(false)),
        None => format!("{}/{}", format_current_value(current, "value", true), target.quantity_at("value")),
    }
}

/// Formats current and target of a resource metric: a quantity or a percentage.
fn format_resource_metric(target: &PrintedObject, current: Option<PrintedObject>) -> String {
    if target.value_at("averageValue").is_some() {
        return format!(
            "{}/{}",
            format_current_value(current, "averageValue", true),
            target.quantity_at("averageValue")
        );
    }
    let percent = |of: Option<&PrintedObject>, absent: &str| {
        let share = of.and_then(|of| of.value_at("averageUtilization")?.as_i64());
        share.map_or(absent.to_owned(), |share| format!("{share}%"))
    };
    format!("{}/{}", percent(current.as_ref(), "<unknown>"), percent(Some(target), "<auto>"))
}

/// Formats a current value; an unreported one is 0 with `zero`.
fn format_current_value(current: Option<PrintedObject>, field: &str, zero: bool) -> String {
    match current {
        Some(current) if zero || current.value_at(field).is_some() => current.quantity_at(field),
        _ => "<unknown>".to_owned(),
    }
}

fn certificate_condition_cell(row: &PrintedObject) -> Value {
    let decided = ["Denied", "Approved"].into_iter().find(|ty| row.find_condition(ty).is_some());
    let failed = if row.find_condition("Failed").is_some() { ",Failed" } else { "" };
    let issued = if row.string_at("status.certificate").is_empty() { "" } else { ",Issued" };
    [decided.unwrap_or("Pending"), failed, issued].concat().into()
}

/// The selector of a parameter in Go's protobuf text format.
fn parameter_selector_cell(row: &PrintedObject) -> Value {
    let selector = row.with_object(row.value_at("spec.paramRef.selector").unwrap_or(&Value::Null));
    let labels = selector.value_at("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    let expression = |one: PrintedObject| {
        let values: Vec<&str> = one.list_at("values").filter_map(|value| value.object.as_str()).collect();
        let (key, operator) = (one.string_at("key"), one.string_at("operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let expressions: String = selector.list_at("matchExpressions").map(expression).collect();
    let labels = format!("MatchLabels:map[string]string{{{}}}", pairs.concat());
    format!("&LabelSelector{{{labels},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}").into()
}

fn available_cell(row: &PrintedObject) -> Value {
    let Some(condition) = row.find_condition("Available") else { return "Unknown".into() };
    match (condition.string_at("status"), condition.string_at("reason")) {
        (status @ "True", _) | (status, "") => status.into(),
        (status, reason) => format!("{status} ({reason})").into(),
    }
}

fn claim_state_cell(row: &PrintedObject) -> Value {
    let (gone, given) = (row.is_deleting(), row.value_at("status.allocation").is_some());
    let states = [
        (gone, "deleted"),
        (given, "allocated"),
        (given && row.count_at("status.reservedFor") > 0, "reserved"),
        (!gone && !given, "pending"),
    ];
    states.into_iter().filter_map(|(is, state)| is.then_some(state)).collect::<Vec<_>>().join(",").into()
}

/// Sums of devices and errors over all pools, dashes where unknown; then the state of the request.
fn pool_status_cells(row: &PrintedObject) -> Value {
    let ended = row
        .list_at("status.conditions")
        .find(|one| one.string_at("status") == "True" && matches!(one.string_at("type"), "Complete" | "Failed"));
    let state = ended.map_or("Pending", |condition| condition.string_at("type"));
    let (count, shown) = (row.integer_at("status.poolCount"), row.count_at("status.pools"));
    let text = match state {
        "Complete" if count > shown as i64 => format!("Complete ({shown}/{count} pools)"),
        other => other.to_owned(),
    };
    let completed = ended.filter(|_| state == "Complete");
    let completed = completed.map_or("<none>".to_owned(), |condition| condition.age_at("lastTransitionTime"));
    let unknown = row.value_at("status").is_none() || state == "Failed";
    let sum = |field: &str| row.list_at("status.pools").map(|pool| pool.integer_at(field)).sum::<i64>();
    let errors = row.list_at("status.pools").filter(|pool| pool.value_at("validationError").is_some()).count() as i64;
    let sums = ["totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices"].map(sum);
    let cells = sums.into_iter().chain([errors]).map(|n| if unknown { "-".to_owned() } else { n.to_string() });
    let mut cells: Vec<Value> = cells.map(Value::from).collect();
    cells.extend([count.into(), text.into(), completed.into()]);
    Value::Array(cells)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::table::printers;

    fn check(kind: (&str, &str), object: Value, at: usize, want: &[&str]) {
        let now = "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap();
        let cells = printers::printer_for(kind.0, kind.1).row_cells(&PrintedObject { object: &object, now });
        assert_eq!(
            cells[at..at + want.len()],
            want.iter().map(|text| Value::from(*text)).collect::<Vec<_>>(),
            "{object}"
        );
    }

    #[test]
    fn metrics_show_current_and_target() {
        let check = |specs: Value, now: Value, want: &str| {
            let object = json!({"spec": {"metrics": specs}, "status": {"currentMetrics": now}});
            check(("autoscaling", "HorizontalPodAutoscaler"), object, 2, &[want]);
        };
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "1k"}}});
        let external = json!({"type": "External", "external": {"target": {"averageValue": "5"}}});
        let now = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 20}}});
        check(json!([cpu]), json!([now]), "cpu: 20%/80%");
        check(json!([pods, external, cpu]), json!([]), "<unknown>/1k, <unknown>/5 (avg) + 1 more...");
        check(json!([]), json!([]), "<none>");
    }

    #[test]
    fn job_status_and_duration_are_printed() {
        let check = |object: Value, want: [&str; 3]| check(("batch", "Job"), object, 1, &want);
        let started = json!({"startTime": "2026-01-01T00:05:00Z"});
        check(json!({"spec": {"completions": 3}, "status": started}), ["Running", "0/3", "5m"]);
        check(json!({"spec": {"parallelism": 4}, "status": {"succeeded": 1}}), ["Running", "1/1 of 4", ""]);
        let done = json!({"startTime": "2026-01-01T00:05:00Z", "completionTime": "2026-01-01T00:05:07Z", "succeeded": 1,
            "conditions": [{"type": "Complete", "status": "True"}]});
        check(json!({"spec": {"completions": 1}, "status": done}), ["Complete", "1/1", "7s"]);
    }

    #[test]
    fn quotas_split_limits_from_requests() {
        let status = json!({"hard": {"pods": "5", "limits.cpu": "2", "requests.memory": "1Gi"},
            "used": {"pods": "1", "limits.cpu": "500m"}});
        let want = ["pods: 1/5, requests.memory: 0/1Gi", "limits.cpu: 500m/2"];
        check(("", "ResourceQuota"), json!({"status": status}), 1, &want);
    }

    #[test]
    fn roles_come_from_both_labels() {
        let labels =
            json!({"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu", "node-role.kubernetes.io/": "x"});
        check(("", "Node"), json!({"metadata": {"labels": labels}}), 2, &["gpu,worker"]);
    }
}
