//! Claims of devices, as far as the tables cannot say what is right.

use super::prelude::*;
use crate::convert::EXACT_REQUEST_FIELDS;

const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
/// Requests stand in `exactly` or are a list of alternatives; an older version has the one in place.
pub fn one_request(at: &At, e: &mut Errors) {
    let (exactly, first) = (at.get("exactly"), at.get("firstAvailable"));
    let flat = EXACT_REQUEST_FIELDS.iter().any(|field| at.value.get(field).is_some());
    match (exactly.exists() || flat, !first.is_empty()) {
        (false, false) => at.required(e, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let message = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            at.invalid_as(e, Value::Null, message);
        }
        (true, false) if flat => rules::check("ExactRequest", &at.called("exactly", at.value), e),
        (true, false) => rules::check("ExactRequest", &exactly, e),
        (false, true) if first.len() > 8 => first.too_many(e, 8),
        (false, true) => rules::check("Alternatives", &first, e),
    }
}

pub fn json_parameters(parameters: &At, e: &mut Errors) {
    if parameters.value.to_string().len() > 10 * 1024 {
        parameters.too_long(e, 10 * 1024);
    } else if !parameters.value.is_object() {
        parameters.invalid_as(e, "<value omitted>", "must be a valid JSON object");
    }
}

/// A name of a request of the claim, and perhaps of one of its alternatives.
pub fn request_name(at: &At, e: &mut Errors) {
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
pub fn full_name(at: &At, e: &mut Errors) {
    attribute_name(at, at.text(), e);
    if !at.text().contains('/') {
        at.invalid_text(e, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// Upstream tells wrong names of attributes at the map that has them.
pub fn attribute_names(map: &At, e: &mut Errors) {
    map.entries().for_each(|(name, _)| attribute_name(map, name, e));
}

/// The faults of the name of an attribute, with or without a domain.
fn attribute_name(at: &At, name: &str, e: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    let (domain, id) = match parts[..] {
        [id] => (None, id),
        [domain, id] => (Some(domain), id),
        _ => return,
    };
    if let Some(domain) = domain {
        part(at, domain, "the domain must not be empty", 63, names::subdomain_caseless, e);
    }
    if domain.is_some() && id.is_empty() {
        return at.invalid_as(e, "", "the name must not be empty");
    }
    part(at, id, "", 32, names::c_identifier, e);
}

fn part(at: &At, text: &str, missing: &str, most: usize, form: names::Form, e: &mut Errors) {
    if text.is_empty() && !missing.is_empty() {
        return at.invalid_as(e, "", missing);
    }
    if text.len() > most {
        at.too_long(e, most);
    }
    at.form_as(e, text, form);
}

/// A device waits for conditions, and for those that end the waiting.
pub fn binding_conditions(at: &At, e: &mut Errors) {
    let (wanted, failed) = (at.get("bindingConditions"), at.get("bindingFailureConditions"));
    for list in [&wanted, &failed] {
        if list.len() > 4 {
            list.too_many(e, 4);
        } else {
            list.items().for_each(|condition| condition.form(e, names::qualified));
        }
    }
    wanted.unique(|condition| condition.text(), |condition, text| condition.duplicate(e, text));
    failed.unique(|condition| condition.text(), |condition, text| condition.duplicate(e, text));
    for condition in failed.items().filter(|condition| wanted.has(condition.text())) {
        condition.invalid_text(e, "bindingFailureConditions must not overlap with bindingConditions");
    }
    if wanted.is_empty() && !failed.is_empty() {
        wanted.invalid(e, "bindingConditions are required to use bindingFailureConditions");
    }
    if failed.is_empty() && !wanted.is_empty() {
        failed.invalid(e, "bindingFailureConditions are required to use bindingConditions");
    }
}

/// An effect is a known one; what an older server let pass may stay.
pub fn taint_effect(taint: &At, e: &mut Errors) {
    let effect = taint.get("effect");
    if effect.before().text() != effect.text() || !taint.before().exists() {
        rules::check("DeviceTaintEffect", taint, e);
    }
}

/// The status of a device is that of one that the claim has, told once.
pub fn device_statuses(list: &At, e: &mut Errors) {
    const KEY: [&str; 4] = ["driver", "pool", "device", "shareID"];
    let key =
        |device: &At| KEY.map(|field| device.value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned());
    let status = list.up(1);
    let allocation = status.get("allocation");
    let devices = allocation.get("devices");
    let results = devices.get("results");
    let mut seen = Vec::new();
    for device in list.items() {
        let own = key(&device);
        let shown = || {
            let id = own[..3].join("/");
            Bad::Shown(if own[3].is_empty() { id } else { format!("{id}/{}", own[3]) })
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

pub fn uuid(at: &At, e: &mut Errors) {
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

/// Who uses a claim: nobody where nothing is allocated, nobody new while it goes away.
pub fn reserved_for(claim: &At, e: &mut Errors) {
    let status = claim.get("status");
    let reserved = status.get("reservedFor");
    if reserved.is_empty() {
        return;
    }
    if !status.get("allocation").exists() {
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
pub fn pool_name(at: &At, e: &mut Errors) {
    at.text().split('/').for_each(|part| at.form_as(e, part, names::subdomain));
}

/// As [`pool_name`], in the words of the declared rules.
pub fn segmented_pool_name(at: &At, e: &mut Errors) {
    if at.text().len() > 253 {
        at.too_long(e, 253);
    }
    for (index, part) in at.text().split('/').enumerate() {
        if part.is_empty() {
            at.invalid_text(e, format!("segment {index}: must not be empty"));
            continue;
        }
        names::subdomain(part)
            .into_iter()
            .for_each(|fault| at.invalid_as(e, part, format!("segment {index}: {fault}")));
    }
}
