//! Validation of events, which are stricter when they are written through their own group.

use super::{Errors, at::At, names, render::same};

/// The names of an event's fields, which differ between the groups.
struct Names {
    object: &'static str,
    component: &'static str,
    note: &'static str,
}

const CORE: Names = Names { object: "involvedObject", component: "reportingComponent", note: "message" };
const EVENTS: Names = Names { object: "regarding", component: "reportingController", note: "note" };

/// The faults of an event written through the core group.
pub(super) fn core(new: &At, _: Option<&At>, e: &mut Errors) {
    legacy(new, &CORE, e);
}

/// The faults of an event written through its own group, before its metadata is looked at.
pub(super) fn before_metadata(new: &At, e: &mut Errors) {
    legacy(new, &EVENTS, e);
}

/// The faults of an event written through its own group.
pub(super) fn events(new: &At, old: Option<&At>, e: &mut Errors) {
    match old {
        None => created(new, e),
        Some(old) => changed(new, old, e),
    }
}

fn legacy(event: &At, fields: &Names, e: &mut Errors) {
    let namespace = event.get("metadata").get("namespace").text();
    let object = event.called("involvedObject", event.get(fields.object).value);
    let of = object.get("namespace");
    let mismatch = "does not match event.namespace";
    if !event.get("eventTime").exists() {
        let right = if of.is_empty() { matches!(namespace, "" | "default") } else { namespace == of.text() };
        if !right {
            of.invalid_text(e, mismatch);
        }
    } else {
        if of.is_empty() && !matches!(namespace, "default" | "kube-system") {
            of.invalid_text(e, mismatch);
        }
        reporter(event, fields, e);
    }
    for fault in names::subdomain(namespace) {
        event.get("namespace").invalid_as(e, namespace, fault);
    }
}

fn reporter(event: &At, fields: &Names, e: &mut Errors) {
    let component = event.get(fields.component);
    component.require(e);
    component.form(e, names::qualified);
    for field in ["reportingInstance", "action", "reason"] {
        let text = event.get(field);
        text.require(e);
        if text.text().len() > 128 {
            text.invalid_as(e, "", "can have at most 128 characters");
        }
    }
    if event.get(fields.note).text().len() > 1024 {
        event.get("message").invalid_as(e, "", "can have at most 1024 characters");
    }
}

fn series(event: &At, e: &mut Errors) {
    let series = event.get("series");
    if !series.exists() {
        return;
    }
    if series.get("count").int() < 2 {
        event.get("series.count").invalid_as(e, "", "should be at least 2");
    }
    if !series.get("lastObservedTime").exists() {
        event.get("series.lastObservedTime").required(e, "");
    }
}

fn created(event: &At, e: &mut Errors) {
    series(event, e);
    if !event.get("eventTime").exists() {
        event.get("eventTime").required(e, "");
    }
    let kind = event.get("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        kind.invalid_as(e, "", format!("has invalid value: {}", kind.text()));
    }
    let unset = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ];
    for (field, shown) in unset {
        let given = event.get(field);
        let empty = !given.exists() || given.value == &serde_json::json!({}) || given.value == &serde_json::json!(0);
        if !empty {
            event.get(shown).invalid_as(e, "", "needs to be unset");
        }
    }
}

fn changed(event: &At, old: &At, e: &mut Errors) {
    if !same(event.get("series").value, old.get("series").value) {
        series(event, e);
    }
    let fixed = [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, shown) in fixed {
        event.called(shown, event.get(field).value).unchanged(e, &old.get(field));
    }
}
