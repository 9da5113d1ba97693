//! Validation of questions to the server: access reviews and token requests.

use super::{Errors, at::At, error::Bad, render, selector};
use crate::Value;

const RESOURCE: &str = "spec.resourceAttributes";

/// The faults of a review of someone's access.
pub(super) fn subject(new: &At, _: Option<&At>, e: &mut Errors) {
    attributes(new, true, e);
    no_metadata(new, &[], "must be empty", e);
}

/// The faults of a review of one's own access.
pub(super) fn own(new: &At, _: Option<&At>, e: &mut Errors) {
    attributes(new, false, e);
    no_metadata(new, &[], "must be empty", e);
}

/// The faults of a review of someone's access in a namespace.
pub(super) fn local(new: &At, _: Option<&At>, e: &mut Errors) {
    attributes(new, true, e);
    no_metadata(new, &["namespace"], "must be empty except for namespace", e);
    let spec = new.get("spec");
    let (resource, urls) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let namespace = resource.get("namespace");
    if resource.exists() && namespace.text() != new.get("metadata").get("namespace").text() {
        namespace.invalid_text(e, "must match metadata.namespace");
    }
    if urls.exists() {
        urls.invalid_internal(e, "authorization/v1.NonResourceAttributes", "disallowed on this kind of request");
    }
}

fn attributes(review: &At, named: bool, e: &mut Errors) {
    let spec = review.get("spec");
    let (resource, urls) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if resource.exists() && urls.exists() {
        let message = "cannot be specified in combination with resourceAttributes";
        urls.invalid_internal(e, "authorization/v1.NonResourceAttributes", message);
    }
    if !resource.exists() && !urls.exists() {
        let message = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        resource.invalid(e, message);
    }
    if named && spec.get("user").is_empty() && spec.get("groups").is_empty() {
        spec.get("user").invalid_text(e, "at least one of user or group must be specified");
    }
    for field in ["fieldSelector", "labelSelector"] {
        let at = resource.get(field);
        if at.exists() {
            requirements(&at, field, e);
        }
    }
}

fn requirements(at: &At, field: &str, e: &mut Errors) {
    let (raw, list) = (at.get("rawSelector"), at.get("requirements"));
    if !raw.is_empty() && !list.is_empty() {
        raw.invalid_text(e, "may not specified at the same time as requirements");
    }
    if raw.is_empty() && list.is_empty() {
        let message = format!("when {RESOURCE}.{field} is specified, requirements or rawSelector is required");
        list.required(e, message);
    }
    for requirement in list.items() {
        let known = matches!(requirement.get("operator").text(), "In" | "NotIn" | "Exists" | "DoesNotExist");
        if field == "labelSelector" && known {
            selector::requirement(&requirement, false, e);
        } else if field == "fieldSelector" {
            field_requirement(&requirement, e);
        }
    }
}

fn field_requirement(at: &At, e: &mut Errors) {
    let (key, values) = (at.get("key"), at.get("values"));
    if key.is_empty() {
        key.required(e, "must be specified");
    }
    match at.get("operator").text() {
        "In" | "NotIn" if values.is_empty() => {
            values.required(e, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden(e, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
}

/// A review has no metadata; what the server itself puts there does not count.
fn no_metadata(review: &At, allowed: &[&str], message: &str, e: &mut Errors) {
    let meta = review.get("metadata");
    let set_by_server = ["managedFields", "creationTimestamp", "uid"];
    let extra = |(field, value): (&String, &Value)| {
        !allowed.contains(&field.as_str()) && !set_by_server.contains(&field.as_str()) && !value.is_null()
    };
    if meta.value.as_object().into_iter().flatten().any(extra) {
        let shown = Bad::Shown(render::external("meta/v1.ObjectMeta", meta.value));
        meta.invalid_as(e, shown, message);
    }
}

/// The faults of a request for a token.
pub(super) fn token(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let expiry = spec.get("expirationSeconds");
    if expiry.int() < 600 {
        expiry.invalid_int(e, "may not specify a duration less than 10 minutes");
    }
    if expiry.int() > 1 << 32 {
        expiry.invalid(e, "may not specify a duration larger than 2^32 seconds");
    }
}
