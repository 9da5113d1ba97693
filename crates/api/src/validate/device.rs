//! Claims of devices, as far as the tables cannot say what is right.

use super::{
    Errors,
    at::At,
    names, resource_name as resource,
    rules::{self, Functions},
};
use crate::Value;

pub(super) const FUNCTIONS: Functions = functions![
    extended_resource,
    one_request,
    device_parameters,
    request_name,
    full_name,
    attribute_name,
    reserved_for,
    pool_name
];

const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
fn extended_resource(name: &At, e: &mut Errors) {
    if !resource::is_extended(name.text()) {
        name.invalid_text(e, "must be a valid extended resource name");
    }
}

/// Requests stand in `exactly` or are a list of alternatives; an older version has the one in place.
fn one_request(at: &At, e: &mut Errors) {
    let (exactly, first) = (at.get("exactly"), at.get("firstAvailable"));
    let flat = !at.get("deviceClassName").is_empty() || at.get("allocationMode").exists();
    match (exactly.exists() || flat, !first.is_empty()) {
        (false, false) => at.required(e, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let message = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            at.invalid_as(e, Value::Null, message);
        }
        (true, false) => rules::check("ExactRequest", if exactly.exists() { &exactly } else { at }, e),
        (false, true) => rules::check("Alternatives", &first, e),
    }
}

fn device_parameters(parameters: &At, e: &mut Errors) {
    if !parameters.value.is_object() {
        parameters.invalid_as(e, "<value omitted>", "must be a valid JSON object");
    } else if parameters.value.to_string().len() > 10 * 1024 {
        parameters.too_long(e, 10 * 1024);
    }
}

/// A name of a request of the claim, and perhaps of one of its alternatives.
fn request_name(at: &At, e: &mut Errors) {
    let parts: Vec<&str> = at.text().split('/').collect();
    if parts.len() > 2 {
        return at.invalid_text(e, NOT_A_REQUEST);
    }
    parts.iter().for_each(|part| at.form_as(e, part, names::label));
    let object = at.whole();
    let (own, inner) = (object.get("spec"), object.get("spec"));
    let inner = inner.get("spec");
    let spec = if inner.exists() { &inner } else { &own };
    let devices = spec.get("devices");
    let known = devices.get("requests").items().any(|request| {
        let sub = parts.get(1).is_none_or(|sub| request.get("firstAvailable").find("name", sub).is_some());
        request.text_of("name") == parts[0] && sub
    });
    if !known {
        at.invalid_text(e, NOT_A_REQUEST);
    }
}

/// An attribute with its domain: `driver.example.com/model`.
fn full_name(at: &At, e: &mut Errors) {
    if at.is_empty() {
        at.required(e, "name required");
    } else if !at.text().contains('/') {
        at.invalid_text(e, "must include a domain");
    } else {
        attribute(at.text(), at, e);
    }
}

/// The name of an attribute, with or without a domain.
pub(super) fn attribute(name: &str, at: &At, e: &mut Errors) {
    let (domain, id) = name.split_once('/').unwrap_or(("", name));
    if name.matches('/').count() > 1 {
        return at.invalid_as(e, name, "must not contain more than one slash");
    }
    if name.contains('/') && domain.is_empty() {
        at.required(e, "the domain must not be empty");
    }
    if !domain.is_empty() {
        if domain.len() > 63 {
            at.too_long(e, 63);
        }
        at.form_as(e, domain, names::subdomain);
    }
    if id.is_empty() {
        at.required(e, "the name must not be empty");
    } else {
        if id.len() > 32 {
            at.too_long(e, 32);
        }
        at.form_as(e, id, names::c_identifier);
    }
}

fn attribute_name(entry: &At, e: &mut Errors) {
    attribute(entry.name(), entry, e);
}

/// Who uses a claim: nobody where nothing is allocated, nobody new while it goes away.
fn reserved_for(claim: &At, e: &mut Errors) {
    let status = claim.get("status");
    let reserved = status.get("reservedFor");
    if !reserved.is_empty() && !status.get("allocation").exists() {
        reserved.forbidden(e, "may not be specified when `allocated` is not set");
    } else if claim.get("metadata").get("deletionTimestamp").exists() {
        let was = reserved.before();
        if reserved.items().any(|consumer| !was.items().any(|old| old.value == consumer.value)) {
            let message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            reserved.forbidden(e, message);
        }
    }
}

/// The name of a pool: subdomains with slashes between.
fn pool_name(at: &At, e: &mut Errors) {
    at.text().split('/').for_each(|part| at.form_as(e, part, names::subdomain));
}
