//! Events, which are stricter when they are written through their own group.

use super::prelude::*;
use crate::decode;

pub(super) const FUNCTIONS: Functions = functions! {
    core_event event_of_group event_series changed_series no_old_fields
};

/// The names of an event's fields, which differ between the groups.
struct Names {
    object: &'static str,
    component: &'static str,
    note: &'static str,
}

const CORE: Names = Names { object: "involvedObject", component: "reportingComponent", note: "message" };
const EVENTS: Names = Names { object: "regarding", component: "reportingController", note: "note" };

fn core_event(event: &At, e: &mut Errors) {
    legacy(event, &CORE, e);
}

fn event_of_group(event: &At, e: &mut Errors) {
    legacy(event, &EVENTS, e);
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
    event.get("namespace").form_as(e, namespace, names::subdomain);
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

fn event_series(event: &At, e: &mut Errors) {
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

fn changed_series(event: &At, e: &mut Errors) {
    if event.get("series").differs() {
        event_series(event, e);
    }
}

/// What only the core group has is not set.
fn no_old_fields(event: &At, e: &mut Errors) {
    const FIELDS: [(&str, &str); 4] = [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ];
    for (_, shown) in FIELDS.iter().filter(|(field, _)| !decode::is_zero(event.get(field).value)) {
        event.get(shown).invalid_as(e, "", "needs to be unset");
    }
}
