//! Rows of Deployments and ReplicaSets.

use jiff::Timestamp;

use super::{AGE, Column, NAME, age};
use crate::{Value, meta};

const WIDE: [Column; 3] =
    [Column("Containers", "string", "", 1), Column("Images", "string", "", 1), Column("Selector", "string", "", 1)];

pub(super) const DEPLOYMENT: &[Column] = &{
    let [containers, images, selector] = WIDE;
    [
        NAME,
        Column("Ready", "string", "", 0),
        Column("Up-to-date", "string", "", 0),
        Column("Available", "string", "", 0),
        AGE,
        containers,
        images,
        selector,
    ]
};

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = |field: &str| meta::number(object, &["status", field]);
    let mut cells = vec![
        meta::name(object).into(),
        format!("{}/{}", status("readyReplicas"), meta::number(object, &["spec", "replicas"])).into(),
        status("updatedReplicas").into(),
        status("availableReplicas").into(),
        age(object, now),
    ];
    cells.extend(wide(object));
    cells
}

pub(super) const REPLICA_SET: &[Column] = &{
    let [containers, images, selector] = WIDE;
    [
        NAME,
        Column("Desired", "integer", "", 0),
        Column("Current", "integer", "", 0),
        Column("Ready", "integer", "", 0),
        AGE,
        containers,
        images,
        selector,
    ]
};

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![
        meta::name(object).into(),
        meta::number(object, &["spec", "replicas"]).into(),
        meta::number(object, &["status", "replicas"]).into(),
        meta::number(object, &["status", "readyReplicas"]).into(),
        age(object, now),
    ];
    cells.extend(wide(object));
    cells
}

fn wide(object: &Value) -> [Value; 3] {
    let containers = meta::list(object, &["spec", "template", "spec", "containers"]);
    let joined = |field: &str| containers.iter().map(|c| meta::text(c, &[field])).collect::<Vec<_>>().join(",");
    [joined("name").into(), joined("image").into(), selector(&object["spec"]["selector"]).into()]
}

/// `app=web,tier in (a,b)`, as `metav1.FormatLabelSelector` writes it.
fn selector(selector: &Value) -> String {
    let labels = meta::at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let mut parts: Vec<String> = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in meta::list(selector, &["matchExpressions"]) {
        let key = meta::text(expression, &["key"]);
        let values = meta::list(expression, &["values"]).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        parts.push(match meta::text(expression, &["operator"]) {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({values})", operator.to_lowercase()),
        });
    }
    parts.sort();
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}
