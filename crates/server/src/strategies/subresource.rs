//! What writes through a subresource may change.

use api::{Value, meta, schema::Resource};

use super::of;

/// What a client may set in the metadata, besides the owners of fields.
pub const METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// Resources whose status is written without their metadata.
const STATUS_ALONE: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "podcertificaterequests"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("internal.apiserver.k8s.io", "storageversions"),
    ("networking.k8s.io", "servicecidrs"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourcepoolstatusrequests"),
    ("scheduling.k8s.io", "podgroups"),
    ("storage.k8s.io", "volumeattachments"),
    ("storagemigration.k8s.io", "storageversionmigrations"),
];

/// The object that a change through a subresource makes.
pub fn through(resource: &Resource, subresource: &str, object: Value, current: &Value) -> Value {
    let mut changed = of(resource).through(subresource, object, current);
    if STATUS_ALONE.contains(&resource.storage()) {
        keep(&mut changed["metadata"], &current["metadata"], METADATA);
    }
    changed
}

/// The current object with another's metadata and status.
pub fn with_status(mut object: Value, current: &Value) -> Value {
    let mut kept = current.clone();
    keep(&mut kept, &object, &["status"]);
    kept["metadata"] = object["metadata"].take();
    kept
}

/// Takes fields from another object, also when they are absent there.
pub fn keep(object: &mut Value, from: &Value, fields: &[&str]) {
    let map = meta::object_mut(object);
    for field in fields {
        match from.get(field) {
            Some(value) => map.insert((*field).to_owned(), value.clone()),
            None => map.remove(*field),
        };
    }
}
