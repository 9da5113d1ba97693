//! Rows of Nodes, with their condition, roles, versions and addresses, and of RuntimeClasses.

use std::collections::BTreeSet;

use super::{
    printer::{AGE, Column, NAME, text, wide},
    row::Row,
};
use crate::{Value, meta};

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    text("Status"),
    text("Roles"),
    AGE,
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];

pub(super) fn cells(row: &Row) -> Vec<Value> {
    let info = |name: &str, absent| row.text_or(&["status", "nodeInfo", name], absent);
    vec![
        row.name(),
        status(row).into(),
        roles(row.object).into(),
        row.age(),
        info("kubeletVersion", ""),
        address(row, "InternalIP").into(),
        address(row, "ExternalIP").into(),
        info("osImage", "<unknown>"),
        kernel(row).into(),
        info("containerRuntimeVersion", "<unknown>"),
    ]
}

fn status(row: &Row) -> String {
    // The last condition of a type counts.
    let ready = row.list(&["status", "conditions"]).iter().rfind(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| meta::text(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let labels = meta::at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> =
        labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn kernel(row: &Row) -> String {
    let version = match row.text(&["status", "nodeInfo", "kernelVersion"]) {
        "" => "<unknown>",
        version => version,
    };
    match row.text(&["status", "nodeInfo", "architecture"]) {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

fn address<'a>(row: &Row<'a>, kind: &str) -> &'a str {
    let found = row.list(&["status", "addresses"]).iter().find(|address| address["type"] == kind);
    found.map_or("<none>", |address| meta::text(address, &["address"]))
}

pub(super) const RUNTIME_CLASS: &[Column] = &[NAME, text("Handler"), AGE];

pub(super) fn runtime_class(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text(&["handler"]).into(), row.age()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_come_from_both_labels() {
        let node = json!({"metadata": {"labels": {
            "node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu", "node-role.kubernetes.io/": "x"}}});
        assert_eq!(roles(&node), "gpu,worker");
    }
}
