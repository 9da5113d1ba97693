//! An event's row.

use jiff::Timestamp;

use super::Column;
use crate::{Value, meta, time};

pub(super) const COLUMNS: &[Column] = &[
    Column("Last Seen", "string", "", 0),
    Column("Type", "string", "", 0),
    Column("Reason", "string", "", 0),
    Column("Object", "string", "", 0),
    Column("Subobject", "string", "", 1),
    Column("Source", "string", "", 1),
    Column("Message", "string", "", 0),
    Column("First Seen", "string", "", 1),
    Column("Count", "string", "", 1),
    Column("Name", "string", "", 1),
];

pub(super) fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let text = |path: &[&str]| Some(meta::text(event, path)).filter(|text| !text.is_empty());
    let event_time = text(&["eventTime"]);
    let first = text(&["firstTimestamp"]).or(event_time);
    let last = text(&["series", "lastObservedTime"]).or(text(&["lastTimestamp"])).or(first);
    let count = match (meta::number(event, &["series", "count"]), meta::number(event, &["count"])) {
        (0, 0) => 1,
        (0, count) | (count, _) => count,
    };
    vec![
        time::age(last, now).into(),
        meta::text(event, &["type"]).into(),
        meta::text(event, &["reason"]).into(),
        object(event).into(),
        meta::text(event, &["involvedObject", "fieldPath"]).into(),
        source(event).into(),
        meta::text(event, &["message"]).trim().into(),
        time::age(first, now).into(),
        count.into(),
        meta::name(event).into(),
    ]
}

fn object(event: &Value) -> String {
    let kind = meta::text(event, &["involvedObject", "kind"]).to_lowercase();
    match meta::text(event, &["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let component = match meta::text(event, &["source", "component"]) {
        "" => meta::text(event, &["reportingComponent"]),
        component => component,
    };
    let host = match meta::text(event, &["source", "host"]) {
        "" => meta::text(event, &["reportingInstance"]),
        host => host,
    };
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}
