//! An event's row.

use super::{
    printer::{Column, NAME, text, wide},
    row::Row,
};
use crate::{Value, time};

pub(super) const COLUMNS: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    Column { priority: 1, ..NAME },
];

pub(super) fn cells(row: &Row) -> Vec<Value> {
    let set = |path: &[&str]| Some(row.text(path)).filter(|text| !text.is_empty());
    let series = row.at(&["series"]);
    let first = set(&["firstTimestamp"]).or(set(&["eventTime"]));
    let last = match series {
        Some(_) => set(&["series", "lastObservedTime"]),
        None => set(&["lastTimestamp"]).or(first),
    };
    let count = match (series, row.number(&["count"])) {
        (Some(_), _) => row.number(&["series", "count"]),
        (None, 0) => 1,
        (None, count) => count,
    };
    vec![
        time::age(last, row.now).into(),
        row.text(&["type"]).into(),
        row.text(&["reason"]).into(),
        object(row).into(),
        row.text(&["involvedObject", "fieldPath"]).into(),
        source(row).into(),
        row.text(&["message"]).trim().into(),
        time::age(first, row.now).into(),
        count.into(),
        row.name(),
    ]
}

fn object(row: &Row) -> String {
    let kind = row.text(&["involvedObject", "kind"]).to_lowercase();
    match row.text(&["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(row: &Row) -> String {
    let first = |paths: [&[&str]; 2]| paths.into_iter().map(|path| row.text(path)).find(|text| !text.is_empty());
    let component = first([&["source", "component"], &["reportingComponent"]]).unwrap_or_default();
    match first([&["source", "host"], &["reportingInstance"]]) {
        Some(instance) => format!("{component}, {instance}"),
        None => component.to_owned(),
    }
}
