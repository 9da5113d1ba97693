//! Rows of dynamic resource allocation: claims, slices, taints and the state of pools.

use super::{
    printer::{AGE, Column, NAME, integer, text},
    row::Row,
};
use crate::{Value, meta, time};

pub(super) const CLAIM: &[Column] = &[NAME, text("State"), AGE];

pub(super) fn claim(row: &Row) -> Vec<Value> {
    let mut states = Vec::new();
    if row.deleting() {
        states.push("deleted");
    }
    if row.at(&["status", "allocation"]).is_some() {
        states.push("allocated");
        if row.count(&["status", "reservedFor"]) > 0 {
            states.push("reserved");
        }
    } else if !row.deleting() {
        states.push("pending");
    }
    vec![row.name(), states.join(",").into(), row.age()]
}

pub(super) const SLICE: &[Column] = &[NAME, text("Node"), text("Driver"), text("Pool"), AGE];

pub(super) fn slice(row: &Row) -> Vec<Value> {
    vec![
        row.name(),
        row.text(&["spec", "nodeName"]).into(),
        row.text(&["spec", "driver"]).into(),
        row.text(&["spec", "pool", "name"]).into(),
        row.age(),
    ]
}

pub(super) const TAINT: &[Column] = &[NAME, text("Key"), text("Value"), text("Effect"), text("TimeAdded"), AGE];

pub(super) fn taint(row: &Row) -> Vec<Value> {
    let field = |name: &str| row.text(&["spec", "taint", name]);
    let added = match field("timeAdded") {
        "" => String::new(),
        added => time::age(Some(added), row.now),
    };
    vec![row.name(), field("key").into(), field("value").into(), field("effect").into(), added.into(), row.age()]
}

pub(super) const POOL_STATUS: &[Column] = &[
    NAME,
    text("Driver"),
    text("Total"),
    text("Available"),
    text("Allocated"),
    text("Unavailable"),
    text("Errors"),
    integer("Pools"),
    text("Status"),
    text("Completed"),
];

pub(super) fn pool_status(row: &Row) -> Vec<Value> {
    let ended = row.list(&["status", "conditions"]).iter().find(|condition| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    });
    let state = ended.map_or("Pending", |condition| meta::text(condition, &["type"]));
    let pools = row.list(&["status", "pools"]);
    let count = row.number(&["status", "poolCount"]);
    let state_text = match state {
        "Complete" if count > pools.len() as i64 => format!("Complete ({}/{count} pools)", pools.len()),
        other => other.to_owned(),
    };
    let completed = ended.filter(|_| state == "Complete").map_or("<none>".to_owned(), |condition| {
        time::age(Some(meta::text(condition, &["lastTransitionTime"])), row.now)
    });
    let mut cells = vec![row.name(), row.text(&["spec", "driver"]).into()];
    cells.extend(sums(row, pools, state));
    cells.extend([count.into(), state_text.into(), completed.into()]);
    cells
}

/// Devices of all pools and how many pools have errors; dashes where nothing is known.
fn sums(row: &Row, pools: &[Value], state: &str) -> [Value; 5] {
    if row.at(&["status"]).is_none() || state == "Failed" {
        return std::array::from_fn(|_| "-".into());
    }
    let sum = |field: &str| Value::from(pools.iter().map(|pool| meta::number(pool, &[field])).sum::<i64>().to_string());
    let errors = pools.iter().filter(|pool| meta::at(pool, &["validationError"]).is_some()).count();
    [
        sum("totalDevices"),
        sum("availableDevices"),
        sum("allocatedDevices"),
        sum("unavailableDevices"),
        errors.to_string().into(),
    ]
}
