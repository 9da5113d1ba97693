//! Compares tables with those that upstream printed of the same objects.

use crate::shared;
use std::collections::HashMap;

use crate::shared::{differences, report};
use ferry_api::{
    Value,
    schema::schema,
    table::{self, IncludeObject},
    time,
};
use jiff::Timestamp;
use serde_json::json;

/// Group, version and resource of an object's path.
fn resource(path: &str) -> Option<(&str, &str, &str)> {
    match path.trim_matches('/').split('/').collect::<Vec<_>>().as_slice() {
        ["api", version, "namespaces", _, resource, _] | ["api", version, resource, _] => Some(("", version, resource)),
        ["apis", group, version, "namespaces", _, resource, _] | ["apis", group, version, resource, _] => {
            Some((group, version, resource))
        }
        _ => None,
    }
}

/// Drops ages, which depend on the clock, and descriptions.
fn comparable(table: &Value) -> Value {
    let mut table = table.clone();
    for column in table["columnDefinitions"].as_array_mut().into_iter().flatten() {
        column.as_object_mut().unwrap().remove("description");
    }
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        row.as_object_mut().unwrap().remove("object");
        for cell in row["cells"].as_array_mut().into_iter().flatten() {
            let age = cell.as_str().is_some_and(|text| {
                text == "<unknown>"
                    || text.ends_with(['s', 'm', 'h', 'd']) && text.starts_with(|c: char| c.is_ascii_digit())
            });
            if age {
                *cell = "<age>".into();
            }
        }
    }
    json!({"columnDefinitions": table["columnDefinitions"], "rows": table["rows"]})
}

#[test]
fn tables_equal_recorded_ones() {
    let Some(exchanges) = shared::exchanges() else { return };
    let objects: HashMap<&str, &Value> = exchanges
        .iter()
        .filter(|exchange| exchange["id"].as_str().is_some_and(|id| id.ends_with(" get")))
        .map(|exchange| (exchange["path"].as_str().unwrap(), &exchange["response"]))
        .collect();
    let mut found = Vec::new();
    let mut compared = 0;
    for exchange in &exchanges {
        let id = exchange["id"].as_str().unwrap_or_default();
        let path = exchange["path"].as_str().unwrap_or_default();
        if !id.ends_with(" table") {
            continue;
        }
        // Custom resources have their own columns.
        let Some((group, version, name)) = resource(path) else { continue };
        let Some(resource) = schema().resource(group, version, name) else { continue };
        let object = objects.get(path).unwrap_or_else(|| panic!("{id} has an object"));
        let now =
            time::parse(object["metadata"]["creationTimestamp"].as_str().unwrap()).unwrap_or(Timestamp::UNIX_EPOCH);
        let got = table::build_table(resource, std::iter::once(*object), json!({}), IncludeObject::None, now);
        differences(id, &comparable(&exchange["response"]), &comparable(&got), &mut found);
        compared += 1;
    }
    assert!(compared > 30, "{compared} tables");
    report("tables", compared, &found);
}

/// Kinds whose entry in the list of columns has another name.
const COLUMN_NAMES: &[(&str, &str)] = &[
    ("endpoint", "Endpoints"),
    ("roleBindings", "RoleBinding"),
    ("clusterRoleBindings", "ClusterRoleBinding"),
    ("mutatingWebhook", "MutatingWebhookConfiguration"),
    ("validatingWebhook", "ValidatingWebhookConfiguration"),
    ("priorityLevel", "PriorityLevelConfiguration"),
    ("nodeResourceSlice", "ResourceSlice"),
    ("deviceTaint", "DeviceTaintRule"),
];

/// Kinds without a resource (`scale`, `status`), a driver with more columns than its entry, and capacities, whose
/// columns upstream does not use.
const UNPRINTED_KINDS: &[&str] = &["scale", "status", "csiDriver", "csiStorageCapacity"];

#[test]
fn columns_equal_upstreams_list() {
    let Some(lines) = shared::lines("facts/columns.txt") else { return };
    let mut found = Vec::new();
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        let (name, want) = line.split_once(": ").expect("a kind and its columns");
        if UNPRINTED_KINDS.contains(&name) {
            continue;
        }
        let kind = COLUMN_NAMES.iter().find(|(short, _)| *short == name).map_or(name, |(_, kind)| kind);
        let mut resources = schema().resources().iter();
        let resource =
            resources.find(|resource| resource.kind.eq_ignore_ascii_case(kind)).unwrap_or_else(|| panic!("{name}"));
        let got =
            table::build_table(resource, std::iter::empty(), json!({}), IncludeObject::None, Timestamp::UNIX_EPOCH);
        let got: Vec<String> = got["columnDefinitions"].as_array().unwrap().iter().map(format_column).collect();
        let got = got.join(" | ");
        // The name column of events has a format that the list omits.
        if got.replace("Name:string/name@1", "Name:string@1") != *want && got != *want {
            found.push(format!("{name}: want {want}, got {got}"));
        }
    }
    report("columns", lines.len(), &found);
}

/// Formats `Name:string/name@0` without empty parts.
fn format_column(column: &Value) -> String {
    let text = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
    let format = if text("format").is_empty() { String::new() } else { format!("/{}", text("format")) };
    let priority = if column["priority"] == 0 { String::new() } else { format!("@{}", column["priority"]) };
    format!("{}:{}{format}{priority}", text("name"), text("type"))
}
