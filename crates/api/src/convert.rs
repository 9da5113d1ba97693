//! Conversion between API versions of built-in objects.
//!
//! Objects are stored in the version they were written in. Most versions differ in name only; those that differ in
//! structure have a function here.

mod custom_resource_definition;
mod device_requests;
mod horizontal_pod_autoscaler;

pub(crate) use device_requests::EXACT_REQUEST_FIELDS;

use crate::{
    Map, Value, decode, meta,
    schema::{Resource, schema},
};

/// The field names of an Event in `v1` and in `events.k8s.io/v1`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an object to the version of `resource`.
pub fn convert_to(resource: &Resource, mut object: Value) -> Value {
    if let Some(custom) = &resource.custom_schema {
        return custom.upgrade_stored(object);
    }
    let from = meta::string_at(&object, &["apiVersion"]).to_owned();
    let wanted = resource.api_version();
    if from == wanted {
        return object;
    }
    if let Value::Object(map) = &mut object {
        match (from.as_str(), wanted.as_str()) {
            ("v1", "events.k8s.io/v1") => rename_fields(map, EVENT_FIELDS.iter().copied()),
            ("events.k8s.io/v1", "v1") => {
                rename_fields(map, EVENT_FIELDS.iter().map(|(core, events)| (*events, *core)))
            }
            ("autoscaling/v2", "autoscaling/v1") => horizontal_pod_autoscaler::to_v1(map),
            ("autoscaling/v1", "autoscaling/v2") => horizontal_pod_autoscaler::to_v2(map),
            ("apiextensions.k8s.io/v1beta1", _) => custom_resource_definition::from_v1beta1(map),
            ("resource.k8s.io/v1beta1", _) => device_requests::from_flat_requests(map),
            (_, "resource.k8s.io/v1beta1") => device_requests::to_flat_requests(map),
            _ => {}
        }
        map.insert("apiVersion".into(), wanted.into());
        map.insert("kind".into(), resource.kind.into());
    }
    // Unknown fields are dropped; an object valid in one version decodes in the other.
    match decode::canonicalize(resource.ty, object.clone()) {
        Ok(decoded) => decoded.object,
        Err(_) => object,
    }
}

/// Returns the resource that a stored object was written through.
pub fn resource_written_through(resource: &Resource, object: &Value) -> Option<&'static Resource> {
    let version = meta::string_at(object, &["apiVersion"]);
    schema()
        .resources()
        .iter()
        .find(|r| r.storage_resource() == resource.storage_resource() && r.api_version() == version)
}

fn rename_fields<'a>(map: &mut Map, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_fields_are_renamed_between_groups() {
        let events = schema().resource("events.k8s.io", "v1", "events").unwrap();
        let core = schema().resource("", "v1", "events").unwrap();
        let given = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "p"}, "message": "hello", "count": 3});
        let event = convert_to(events, given);
        assert_eq!(event["note"], "hello");
        assert_eq!(event["deprecatedCount"], 3);
        let back = convert_to(core, event);
        assert_eq!(back["message"], "hello");
        assert_eq!(back["involvedObject"]["name"], "p");
    }
}
