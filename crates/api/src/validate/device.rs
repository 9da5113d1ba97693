//! Validation of ResourceClaims beyond the rule tables.

use super::prelude::*;
use crate::convert::EXACT_REQUEST_FIELDS;

const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
/// Requires `exactly` or `firstAvailable`; `v1beta1` has the exact request inline.
pub fn validate_one_request(at: &FieldCursor, e: &mut ErrorList) {
    let (exactly, first) = (at.get("exactly"), at.get("firstAvailable"));
    let flat = EXACT_REQUEST_FIELDS.iter().any(|field| at.value.get(field).is_some());
    match (exactly.exists() || flat, !first.is_empty()) {
        (false, false) => at.required(e, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let message = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            at.invalid_as(e, Value::Null, message);
        }
        (true, false) if flat => check_block("ExactRequest", &at.child_as("exactly", at.value), e),
        (true, false) => check_block("ExactRequest", &exactly, e),
        (false, true) if first.len() > 8 => first.too_many(e, 8),
        (false, true) => check_block("Alternatives", &first, e),
    }
}

pub fn validate_json_parameters(parameters: &FieldCursor, e: &mut ErrorList) {
    if parameters.value.to_string().len() > 10 * 1024 {
        parameters.too_long(e, 10 * 1024);
    } else if !parameters.value.is_object() {
        parameters.invalid_as(e, "<value omitted>", "must be a valid JSON object");
    }
}

/// Validates the name of a request of the claim, optionally with a subrequest.
pub fn validate_request_name(at: &FieldCursor, e: &mut ErrorList) {
    let parts: Vec<&str> = at.text().split('/').collect();
    if parts.len() > 2 {
        return at.invalid_text(e, NOT_A_REQUEST);
    }
    parts.iter().for_each(|part| at.check_format_as(e, part, names::check_dns_label));
    let object = at.root();
    let (own, inner) = (object.get("spec"), object.get("spec"));
    let inner = inner.get("spec");
    let spec = if inner.exists() { &inner } else { &own };
    let devices = spec.get("devices");
    let known = devices.get("requests").items().any(|request| {
        let sub = parts.get(1).is_none_or(|sub| request.get("firstAvailable").find_by("name", sub).is_some());
        request.text_at("name") == parts[0] && sub
    });
    if !known {
        at.invalid_text(e, NOT_A_REQUEST);
    }
}

/// Requires a qualified attribute name: `driver.example.com/model`.
pub fn validate_full_name(at: &FieldCursor, e: &mut ErrorList) {
    check_attribute_name(at, at.text(), e);
    if !at.text().contains('/') {
        at.invalid_text(e, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// Validates attribute names; upstream reports errors at the map.
pub fn validate_attribute_names(map: &FieldCursor, e: &mut ErrorList) {
    map.entries().for_each(|(name, _)| check_attribute_name(map, name, e));
}

/// Validates an attribute name with or without a domain.
fn check_attribute_name(at: &FieldCursor, name: &str, e: &mut ErrorList) {
    let parts: Vec<&str> = name.split('/').collect();
    let (domain, id) = match parts[..] {
        [id] => (None, id),
        [domain, id] => (Some(domain), id),
        _ => return,
    };
    if let Some(domain) = domain {
        check_name_part(at, domain, "the domain must not be empty", 63, names::check_caseless_subdomain, e);
    }
    if domain.is_some() && id.is_empty() {
        return at.invalid_as(e, "", "the name must not be empty");
    }
    check_name_part(at, id, "", 32, names::check_c_identifier, e);
}

fn check_name_part(at: &FieldCursor, text: &str, missing: &str, most: usize, form: names::NameRule, e: &mut ErrorList) {
    if text.is_empty() && !missing.is_empty() {
        return at.invalid_as(e, "", missing);
    }
    if text.len() > most {
        at.too_long(e, most);
    }
    at.check_format_as(e, text, form);
}

/// Validates binding conditions and binding failure conditions.
pub fn validate_binding_conditions(at: &FieldCursor, e: &mut ErrorList) {
    let (wanted, failed) = (at.get("bindingConditions"), at.get("bindingFailureConditions"));
    for list in [&wanted, &failed] {
        if list.len() > 4 {
            list.too_many(e, 4);
        } else {
            list.items().for_each(|condition| condition.check_format(e, names::check_qualified_name));
        }
    }
    wanted.for_each_duplicate(|condition| condition.text(), |condition, text| condition.duplicate(e, text));
    failed.for_each_duplicate(|condition| condition.text(), |condition, text| condition.duplicate(e, text));
    for condition in failed.items().filter(|condition| wanted.contains_text(condition.text())) {
        condition.invalid_text(e, "bindingFailureConditions must not overlap with bindingConditions");
    }
    if wanted.is_empty() && !failed.is_empty() {
        wanted.invalid(e, "bindingConditions are required to use bindingFailureConditions");
    }
    if failed.is_empty() && !wanted.is_empty() {
        failed.invalid(e, "bindingFailureConditions are required to use bindingConditions");
    }
}

/// Validates a taint effect; an unknown stored effect is tolerated.
pub fn validate_taint_effect(taint: &FieldCursor, e: &mut ErrorList) {
    let effect = taint.get("effect");
    if effect.old_cursor().text() != effect.text() || !taint.old_cursor().exists() {
        check_block("DeviceTaintEffect", taint, e);
    }
}

/// Requires device statuses to refer to allocated devices, once each.
pub fn validate_device_statuses(list: &FieldCursor, e: &mut ErrorList) {
    const KEY: [&str; 4] = ["driver", "pool", "device", "shareID"];
    let key = |device: &FieldCursor| {
        KEY.map(|field| device.value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned())
    };
    let status = list.ancestor(1);
    let allocation = status.get("allocation");
    let devices = allocation.get("devices");
    let results = devices.get("results");
    let mut seen = Vec::new();
    for device in list.items() {
        let own = key(&device);
        let shown = || {
            let id = own[..3].join("/");
            BadValue::Rendered(if own[3].is_empty() { id } else { format!("{id}/{}", own[3]) })
        };
        if !results.items().any(|result| key(&result) == own) {
            device.invalid_as(e, shown(), "must be an allocated device in the claim");
        }
        if seen.contains(&own) {
            device.duplicate(e, shown());
        }
        seen.push(own);
    }
}

pub fn validate_uuid(at: &FieldCursor, e: &mut ErrorList) {
    let hex = |part: &str| part.bytes().all(|c| c.is_ascii_hexdigit());
    let lengths: Vec<usize> = at.text().split('-').map(str::len).collect();
    if at.text().len() != 36 {
        at.invalid(e, format!("error validating uid: invalid UUID length: {}", at.text().len()));
    } else if lengths != [8, 4, 4, 4, 12] || !at.text().split('-').all(hex) {
        at.invalid(e, "error validating uid: invalid UUID format");
    } else if at.text() != at.text().to_lowercase() {
        let form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        at.invalid(e, format!("uid must be in RFC 4122 normalized form, {form}"));
    }
}

/// Validates reservations: none without an allocation, no new ones during deletion.
pub fn validate_reserved_for(claim: &FieldCursor, e: &mut ErrorList) {
    let status = claim.get("status");
    let reserved = status.get("reservedFor");
    if reserved.is_empty() {
        return;
    }
    if !status.get("allocation").exists() {
        reserved.forbidden(e, "may not be specified when `allocated` is not set");
    } else if claim.get("metadata").get("deletionTimestamp").exists() {
        let was = reserved.old_cursor();
        if reserved.items().any(|consumer| !was.items().any(|old| old.value == consumer.value)) {
            let message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            reserved.forbidden(e, message);
        }
    }
}

/// Validates a pool name: subdomains separated by slashes.
pub fn validate_pool_name(at: &FieldCursor, e: &mut ErrorList) {
    at.text().split('/').for_each(|part| at.check_format_as(e, part, names::check_dns_subdomain));
}

/// As [`validate_pool_name`], with the wording of declarative validation.
pub fn validate_segmented_pool_name(at: &FieldCursor, e: &mut ErrorList) {
    if at.text().len() > 253 {
        at.too_long(e, 253);
    }
    for (index, part) in at.text().split('/').enumerate() {
        if part.is_empty() {
            at.invalid_text(e, format!("segment {index}: must not be empty"));
            continue;
        }
        names::check_dns_subdomain(part)
            .into_iter()
            .for_each(|fault| at.invalid_as(e, part, format!("segment {index}: {fault}")));
    }
}
