//! A node's row: its condition, roles, versions and addresses.

use jiff::Timestamp;

use super::{AGE, Column, NAME, age};
use crate::{Value, meta};

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    Column("Status", "string", "", 0),
    Column("Roles", "string", "", 0),
    AGE,
    Column("Version", "string", "", 0),
    Column("Internal-IP", "string", "", 1),
    Column("External-IP", "string", "", 1),
    Column("OS-Image", "string", "", 1),
    Column("Kernel-Version", "string", "", 1),
    Column("Container-Runtime", "string", "", 1),
];

pub(super) fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |name: &str, absent: &'static str| match meta::text(node, &["status", "nodeInfo", name]) {
        "" => Value::from(absent),
        text => text.into(),
    };
    vec![
        meta::name(node).into(),
        status(node).into(),
        roles(node).into(),
        age(node, now),
        info("kubeletVersion", ""),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        info("osImage", "<unknown>"),
        info("kernelVersion", "<unknown>"),
        info("containerRuntimeVersion", "<unknown>"),
    ]
}

fn status(node: &Value) -> String {
    let ready = meta::list(node, &["status", "conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| meta::text(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let labels = meta::at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some("") | None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        Some("") | None => None,
        Some(role) => Some(role.to_owned()),
    };
    let mut roles: Vec<String> = labels.into_iter().flatten().filter_map(role).collect();
    roles.sort();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn address(node: &Value, kind: &str) -> String {
    let addresses = meta::list(node, &["status", "addresses"]);
    let found = addresses.iter().find(|address| address["type"] == kind);
    found.map_or("<none>", |address| meta::text(address, &["address"])).to_owned()
}
