//! Validation of device classes and claims. Expressions are compiled where they are run.

use super::{
    Errors,
    at::At,
    error::Bad,
    metadata, names, pod,
    render::{self, same},
    resource_name as resource, selector, volume_source as source,
};
use crate::Value;

const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
const MOST: usize = 32;

/// The faults of a class of devices.
pub(super) fn class(new: &At, _: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    selectors(&spec.get("selectors"), e);
    let config = spec.get("config");
    limited(&config, MOST, e);
    config.items().for_each(|config| configuration(&config, e));
    let name = spec.get("extendedResourceName");
    if name.exists() && !resource::is_extended(name.text()) {
        name.invalid_text(e, "must be a valid extended resource name");
    }
}

/// The faults of a claim.
pub(super) fn claim(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    match old {
        Some(old) => fixed(&spec, &old.get("spec"), "resource/v1.ResourceClaimSpec", e),
        None => claim_spec(&spec, e),
    }
}

/// The faults of a template of claims.
pub(super) fn claim_template(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    if let Some(old) = old {
        return fixed(&spec, &old.get("spec"), "resource/v1.ResourceClaimTemplateSpec", e);
    }
    let meta = spec.get("metadata");
    metadata::annotations(&meta.get("annotations"), e);
    selector::labels(&meta.get("labels"), e);
    for (field, _) in meta.value.as_object().into_iter().flatten() {
        if field != "annotations" && field != "labels" {
            meta.get(field).forbidden(e, "cannot be set");
        }
    }
    claim_spec(&spec.get("spec"), e);
}

fn fixed(new: &At, old: &At, ty: &str, e: &mut Errors) {
    if !same(new.value, old.value) {
        new.invalid_as(e, Bad::Shown(render::internal(ty, new.value)), super::at::IMMUTABLE);
    }
}

/// A list has a limit.
pub(super) fn limited(list: &At, most: usize, e: &mut Errors) {
    if list.len() > most {
        list.too_many(e, most);
    }
}

/// Elements have names of their own; the second of two is told.
pub(super) fn unique(list: &At, key: &str, e: &mut Errors) {
    let mut seen = Vec::new();
    for item in list.items() {
        let name = if key.is_empty() { item.text() } else { item.get(key).text() };
        if seen.contains(&name) {
            item.duplicate(e, name);
        }
        seen.push(name);
    }
}

fn claim_spec(spec: &At, e: &mut Errors) {
    let devices = spec.get("devices");
    let (requests, constraints, config) = (devices.get("requests"), devices.get("constraints"), devices.get("config"));
    limited(&requests, MOST, e);
    requests.items().for_each(|request| self::request(&request, e));
    unique(&requests, "name", e);
    limited(&constraints, MOST, e);
    for constraint in constraints.items() {
        request_names(&constraint.get("requests"), &requests, e);
        let (alike, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
        if alike.exists() {
            full_name(&alike, e);
        } else if distinct.exists() {
            full_name(&distinct, e);
        } else {
            let message =
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
            constraint.required(e, message);
        }
    }
    limited(&config, MOST, e);
    for config in config.items() {
        request_names(&config.get("requests"), &requests, e);
        configuration(&config, e);
    }
}

/// Requests stand in `exactly` or are a list of alternatives; an older version has the one in place.
fn request(at: &At, e: &mut Errors) {
    at.get("name").form(e, names::label);
    let (exactly, first) = (at.get("exactly"), at.get("firstAvailable"));
    let flat = !at.get("deviceClassName").is_empty() || at.get("allocationMode").exists();
    match (exactly.exists() || flat, !first.is_empty()) {
        (false, false) => at.required(e, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let message = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            at.invalid_as(e, Value::Null, message);
        }
        (true, false) => exact(if exactly.exists() { &exactly } else { at }, e),
        (false, true) => {
            limited(&first, 8, e);
            for alternative in first.items() {
                alternative.get("name").form(e, names::label);
                exact(&alternative, e);
            }
            unique(&first, "name", e);
        }
    }
}

fn exact(at: &At, e: &mut Errors) {
    at.get("deviceClassName").required_form(e, names::subdomain);
    selectors(&at.get("selectors"), e);
    let (mode, count) = (at.get("allocationMode"), at.get("count"));
    match mode.text() {
        "All" => {
            if count.int() != 0 {
                count.invalid(e, "must not be specified when allocationMode is 'All'");
            }
        }
        "ExactCount" => {
            if count.int() <= 0 {
                count.invalid_int(e, "must be greater than zero");
            }
        }
        _ => mode.unsupported(e, &["All", "ExactCount"]),
    }
    pod::scheduling::device_tolerations(&at.get("tolerations"), e);
}

fn selectors(list: &At, e: &mut Errors) {
    limited(list, MOST, e);
    for selector in list.items() {
        let cel = selector.get("cel");
        if !cel.exists() {
            cel.required(e, "");
        } else if cel.get("expression").text().len() > 10 * 1024 {
            cel.get("expression").too_long(e, 10 * 1024);
        }
    }
}

fn configuration(at: &At, e: &mut Errors) {
    let opaque = at.get("opaque");
    if !opaque.exists() {
        return opaque.required(e, "");
    }
    source::csi_driver(&opaque.get("driver"), e);
    let parameters = opaque.get("parameters");
    if !parameters.exists() {
        parameters.required(e, "");
    } else if !parameters.value.is_object() {
        parameters.invalid_as(e, "<value omitted>", "must be a valid JSON object");
    } else if parameters.value.to_string().len() > 10 * 1024 {
        parameters.too_long(e, 10 * 1024);
    }
}

fn request_names(list: &At, requests: &At, e: &mut Errors) {
    limited(list, MOST, e);
    list.items().for_each(|name| request_name(&name, requests, e));
    unique(list, "", e);
}

fn request_name(at: &At, requests: &At, e: &mut Errors) {
    let parts: Vec<&str> = at.text().split('/').collect();
    if parts.len() > 2 {
        return at.invalid_text(e, NOT_A_REQUEST);
    }
    for part in &parts {
        names::label(part).into_iter().for_each(|fault| at.invalid_as(e, *part, fault));
    }
    let known = requests.items().any(|request| {
        let first = request.get("firstAvailable");
        let sub = parts.get(1).is_none_or(|sub| first.items().any(|item| item.get("name").text() == *sub));
        request.get("name").text() == parts[0] && sub
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
        attribute_name(at.text(), at, e);
    }
}

/// The name of an attribute, with or without a domain.
pub(super) fn attribute_name(name: &str, at: &At, e: &mut Errors) {
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
        names::subdomain(domain).into_iter().for_each(|fault| at.invalid_as(e, domain, fault));
    }
    if id.is_empty() {
        at.required(e, "the name must not be empty");
    } else {
        if id.len() > 32 {
            at.too_long(e, 32);
        }
        names::c_identifier(id).into_iter().for_each(|fault| at.invalid_as(e, id, fault));
    }
}

/// The faults of the status of a claim.
pub(super) fn claim_status(new: &At, old: &At, e: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (reserved, allocation) = (status.get("reservedFor"), status.get("allocation"));
    limited(&reserved, 256, e);
    for consumer in reserved.items() {
        for field in ["resource", "name", "uid"] {
            consumer.get(field).require(e);
        }
    }
    unique(&reserved, "uid", e);
    if !reserved.is_empty() && !allocation.exists() {
        reserved.forbidden(e, "may not be specified when `allocated` is not set");
    } else if new.get("metadata").get("deletionTimestamp").exists() {
        let was = before.get("reservedFor");
        if reserved.items().any(|consumer| !was.items().any(|old| old.value == consumer.value)) {
            let message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            reserved.forbidden(e, message);
        }
    }
    if before.get("allocation").exists() && allocation.exists() {
        fixed(&allocation, &before.get("allocation"), "resource/v1.AllocationResult", e);
    } else if allocation.exists() {
        self::allocation(&allocation, &new.get("spec"), e);
    }
}

fn allocation(at: &At, spec: &At, e: &mut Errors) {
    let claimed = spec.get("devices");
    let requests = claimed.get("requests");
    let devices = at.get("devices");
    limited(&devices.get("results"), MOST, e);
    for result in devices.get("results").items() {
        request_name(&result.get("request"), &requests, e);
        source::csi_driver(&result.get("driver"), e);
        pool_name(&result.get("pool"), e);
        result.get("device").form(e, names::label);
    }
    limited(&devices.get("config"), 2 * MOST, e);
    for config in devices.get("config").items() {
        config.get("source").required_one_of(e, &["FromClaim", "FromClass"]);
        request_names(&config.get("requests"), &requests, e);
        configuration(&config, e);
    }
    if at.get("nodeSelector").exists() {
        selector::nodes(&at.get("nodeSelector"), false, e);
    }
}

/// The name of a pool: subdomains with slashes between.
pub(super) fn pool_name(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    if at.text().len() > 253 {
        at.too_long(e, 253);
    }
    for part in at.text().split('/') {
        names::subdomain(part).into_iter().for_each(|fault| at.invalid_as(e, part, fault));
    }
}
