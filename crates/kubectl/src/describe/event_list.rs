//! Events of objects.

use api::Value;

use super::description::{Description, format_age};
use crate::{
    object::{ObjectFields, name_of, namespace_of},
    rest::RestRequest,
    session::Session,
};

/// The events of an object, sorted by the time they were last seen.
pub fn find_events(session: &Session, object: &Value) -> Vec<Value> {
    let mut fields = vec![("involvedObject.name".to_owned(), name_of(object).to_owned())];
    for (field, value) in [
        ("involvedObject.namespace", namespace_of(object)),
        ("involvedObject.kind", if object.text("kind") == "Pod" { "" } else { object.text("kind") }),
        ("involvedObject.uid", object.text("metadata.uid")),
    ] {
        if !value.is_empty() {
            fields.push((field.to_owned(), value.to_owned()));
        }
    }
    fields.sort();
    let selector: Vec<String> = fields.iter().map(|(field, value)| format!("{field}={value}")).collect();
    let namespace = namespace_of(object);
    let path = if namespace.is_empty() {
        "/api/v1/events".to_owned()
    } else {
        format!("/api/v1/namespaces/{namespace}/events")
    };
    let request = RestRequest::get(path).with_query("fieldSelector", selector.join(",")).with_query("limit", "500");
    let list = session.client().and_then(|client| client.send_json(request));
    let mut events = list.map(|list| list.list("items").to_vec()).unwrap_or_default();
    sort_events(&mut events);
    events
}

/// Sorts events by the time they were last seen.
pub fn sort_events(events: &mut [Value]) {
    events.sort_by_key(last_seen);
}

fn last_seen(event: &Value) -> String {
    let candidates = [event.text("series.lastObservedTime"), event.text("lastTimestamp"), event.text("eventTime")];
    candidates.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

/// The age of an event, with its count when it was seen several times.
pub fn event_age(event: &Value) -> String {
    let first = [event.text("firstTimestamp"), event.text("eventTime")]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default();
    let since = format_age(first);
    if event.at("series").is_some() {
        let count = event.integer("series.count").unwrap_or(0);
        return format!("{} (x{count} over {since})", format_age(event.text("series.lastObservedTime")));
    }
    let count = event.integer("count").unwrap_or(0);
    if count > 1 {
        return format!("{} (x{count} over {since})", format_age(event.text("lastTimestamp")));
    }
    since
}

/// Adds events to a description.
pub fn push_events(out: &mut Description, events: &[Value]) {
    if events.is_empty() {
        out.raw("Events:\t<none>\n");
    } else {
        out.raw(&event_table(events));
    }
}

/// The table of events at the end of a description.
fn event_table(events: &[Value]) -> String {
    let mut text = String::from("Events:\n  Type\tReason\tAge\tFrom\tMessage\n  ----\t------\t----\t----\t-------\n");
    for event in events {
        let source = [event.text("source.component"), event.text("reportingComponent")]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_default();
        let mut message = event.text("message").trim().to_owned();
        let field = event.text("involvedObject.fieldPath");
        if !field.is_empty() {
            message = format!("{field}: {message}");
        }
        let (kind, reason) = (event.text("type"), event.text("reason"));
        text += &format!("  {kind}\t{reason}\t{}\t{source}\t{message}\n", event_age(event));
    }
    text
}
