//! Rows of Namespaces, Secrets, ConfigMaps, quotas, and of kinds that print nothing but a name and an age.

use super::{
    printer::{AGE, Column, NAME, text},
    row::{Row, quantity},
};
use crate::{Value, meta};

/// Columns of kinds of which nothing else is printed.
pub(super) const NAMED: &[Column] = &[NAME, AGE];

pub(super) fn named(row: &Row) -> Vec<Value> {
    vec![row.name(), row.age()]
}

pub(super) const NAMESPACE: &[Column] = &[NAME, text("Status"), AGE];

pub(super) fn namespace(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text(&["status", "phase"]).into(), row.age()]
}

pub(super) const SECRET: &[Column] = &[NAME, text("Type"), text("Data"), AGE];

pub(super) fn secret(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text(&["type"]).into(), row.count(&["data"]).into(), row.age()]
}

pub(super) const CONFIG_MAP: &[Column] = &[NAME, text("Data"), AGE];

pub(super) fn config_map(row: &Row) -> Vec<Value> {
    vec![row.name(), (row.count(&["data"]) + row.count(&["binaryData"])).into(), row.age()]
}

pub(super) const RESOURCE_QUOTA: &[Column] = &[NAME, text("Request"), text("Limit"), AGE];

pub(super) fn resource_quota(row: &Row) -> Vec<Value> {
    let hard = row.at(&["status", "hard"]).and_then(Value::as_object);
    let mut entries: Vec<(&String, &Value)> = hard.into_iter().flatten().collect();
    entries.sort_by_key(|(resource, _)| *resource);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in entries {
        let used = quantity(row.at(&["status", "used", resource]));
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {used}/{}", quantity(Some(hard))));
    }
    vec![row.name(), requests.join(", ").into(), limits.join(", ").into(), row.age()]
}

pub(super) const COMPONENT_STATUS: &[Column] = &[NAME, text("Status"), text("Message"), text("Error")];

pub(super) fn component_status(row: &Row) -> Vec<Value> {
    let healthy = row.list(&["conditions"]).iter().find(|condition| condition["type"] == "Healthy");
    let status = match healthy.map(|condition| condition["status"] == "True") {
        Some(true) => "Healthy",
        Some(false) => "Unhealthy",
        None => "Unknown",
    };
    let field = |name: &str| healthy.map_or("", |condition| meta::text(condition, &[name]));
    vec![row.name(), status.into(), field("message").into(), field("error").into()]
}

pub(super) const STATUS: &[Column] = &[text("Status"), text("Reason"), text("Message")];

pub(super) fn status(row: &Row) -> Vec<Value> {
    ["status", "reason", "message"].map(|field| row.text(&[field]).into()).into()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn quotas_split_limits_from_requests() {
        let object = json!({"metadata": {"name": "q"}, "status": {
            "hard": {"pods": "5", "limits.cpu": "2", "requests.memory": "1Gi"}, "used": {"pods": "1", "limits.cpu": "500m"}}});
        let cells = resource_quota(&Row { object: &object, now: Timestamp::UNIX_EPOCH });
        assert_eq!(cells[1], "pods: 1/5, requests.memory: 0/1Gi");
        assert_eq!(cells[2], "limits.cpu: 500m/2");
    }
}
