//! Rows of flow schemas and priority levels.

use std::cmp::Ordering;

use super::{
    printer::{AGE, Column, NAME, text},
    row::Row,
};
use crate::{Value, meta};

pub(super) const SCHEMA: &[Column] =
    &[NAME, text("PriorityLevel"), text("MatchingPrecedence"), text("DistinguisherMethod"), AGE, text("MissingPL")];

pub(super) fn schema(row: &Row) -> Vec<Value> {
    let dangling = row.condition("Dangling").map_or("?", |condition| meta::text(condition, &["status"]));
    vec![
        row.name(),
        row.text(&["spec", "priorityLevelConfiguration", "name"]).into(),
        row.number(&["spec", "matchingPrecedence"]).into(),
        row.text_or(&["spec", "distinguisherMethod", "type"], "<none>"),
        row.age(),
        dangling.into(),
    ]
}

/// Flow schemas are listed in the order in which they are tried.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    let key = |schema| (meta::number(schema, &["spec", "matchingPrecedence"]), meta::name(schema).to_owned());
    key(a).cmp(&key(b))
}

pub(super) const LEVEL: &[Column] = &[
    NAME,
    text("Type"),
    text("NominalConcurrencyShares"),
    text("Queues"),
    text("HandSize"),
    text("QueueLengthLimit"),
    AGE,
];

pub(super) fn level(row: &Row) -> Vec<Value> {
    let limited = row.at(&["spec", "limited"]);
    let queuing = limited.and_then(|limited| meta::at(limited, &["limitResponse", "queuing"]));
    let field = |of: Option<&Value>, name: &str| of.map_or("<none>".into(), |of| of[name].as_i64().unwrap_or(0).into());
    vec![
        row.name(),
        row.text(&["spec", "type"]).into(),
        // A share that is not set is null, not 0.
        limited.map_or("<none>".into(), |limited| limited["nominalConcurrencyShares"].clone()),
        field(queuing, "queues"),
        field(queuing, "handSize"),
        field(queuing, "queueLengthLimit"),
        row.age(),
    ]
}
