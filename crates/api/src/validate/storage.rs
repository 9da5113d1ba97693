//! Validation of StorageClasses, CSI objects and storage migrations beyond the rule tables.

use super::prelude::*;

const MAX_BYTES: usize = 256 * 1024;

pub fn validate_provisioner(at: &FieldCursor, e: &mut ErrorList) {
    at.check_format_as(e, &at.text().to_lowercase(), names::check_qualified_name);
}

fn total_size(map: &FieldCursor) -> usize {
    map.entries().map(|(key, value)| key.len() + value.text().len()).sum()
}

pub fn validate_parameters(at: &FieldCursor, e: &mut ErrorList) {
    if at.len() > 512 {
        return at.too_long(e, 512);
    }
    if at.entries().any(|(key, _)| key.is_empty()) {
        at.invalid_as(e, "", "field can not be empty.");
    }
    if total_size(at) > MAX_BYTES {
        at.too_long(e, MAX_BYTES);
    }
}

/// Validates allowed topologies.
pub fn validate_topologies(list: &FieldCursor, e: &mut ErrorList) {
    // Upstream starts with as many empty terms as there are terms.
    let mut seen: Vec<Vec<(String, Vec<String>)>> = vec![Vec::new(); list.len()];
    for term in list.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut keys: Vec<(String, Vec<String>)> = Vec::new();
        for requirement in expressions.items() {
            let (key, values) = (requirement.get("key"), requirement.get("values"));
            values.require_value(e);
            let mut texts: Vec<String> = Vec::new();
            for value in values.items() {
                if texts.iter().any(|text| text == value.text()) {
                    value.duplicate(e, value.text());
                }
                texts.push(value.text().to_owned());
            }
            key.check_format(e, names::check_qualified_name);
            if keys.iter().any(|(other, _)| other == key.text()) {
                key.duplicate(e, key.text());
            }
            texts.sort_unstable();
            keys.push((key.text().to_owned(), texts));
        }
        keys.sort_unstable();
        seen.iter().filter(|other| **other == keys).for_each(|_| expressions.duplicate(e, ""));
        seen.push(keys);
    }
}

pub fn validate_attachment_metadata(at: &FieldCursor, e: &mut ErrorList) {
    if total_size(at) > MAX_BYTES {
        at.too_long(e, MAX_BYTES);
    }
}

/// Validates the message length; upstream reports another limit.
pub fn validate_error_message(at: &FieldCursor, e: &mut ErrorList) {
    if at.text().len() > 1024 {
        at.too_long(e, MAX_BYTES);
    }
}

/// Validates topology keys; upstream reports errors at the driver.
pub fn validate_topology_keys(driver: &FieldCursor, e: &mut ErrorList) {
    let keys = driver.get("topologyKeys");
    for (at, key) in keys.texts().enumerate() {
        if key.is_empty() {
            driver.required(e, "");
        }
        if keys.texts().take(at).any(|other| other == key) {
            driver.duplicate(e, key);
        }
        driver.check_format_as(e, key, names::check_qualified_name);
    }
}

/// Requires drivers to stay the same, apart from `allocatable`.
pub fn validate_drivers_kept(list: &FieldCursor, e: &mut ErrorList) {
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|map| map.remove("allocatable"));
        driver
    };
    for was in list.old.as_array().into_iter().flatten() {
        for driver in list.items().filter(|driver| driver.value["name"] == was["name"]) {
            let now = fixed(driver.value);
            if !semantically_equal(&now, &fixed(was)) {
                list.invalid_as(e, render_bad_value("storage/v1.CSINodeDriver", &now), IMMUTABLE);
            }
        }
    }
}

/// Validates token requests, one per audience; duplicates are not validated.
pub fn validate_token_requests(list: &FieldCursor, e: &mut ErrorList) {
    let mut seen = Vec::new();
    for request in list.items() {
        let audience = request.get("audience");
        if seen.contains(&audience.text()) {
            audience.duplicate(e, audience.text());
            continue;
        }
        seen.push(audience.text());
        if request.get("expirationSeconds").exists() {
            check_block("TokenSeconds", &request.get("expirationSeconds"), e);
        }
    }
}

/// Returns the errors about a StorageVersion name: `<group>.<resource>`.
pub(super) fn storage_version_name(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = names::check_dns_subdomain(group).into_iter().map(|fault| format!("the group segment {fault}"));
    let resource = names::check_1035_label(resource).into_iter().map(|fault| format!("the resource segment {fault}"));
    group.chain(resource).collect()
}

/// Requires the encoding version to be decodable.
pub fn validate_decodable(server: &FieldCursor, e: &mut ErrorList) {
    let (encoding, decodable) = (server.text_at("encodingVersion"), server.get("decodableVersions"));
    if !decodable.contains_text(encoding) {
        decodable.invalid(e, format!("decodableVersions must include encodingVersion {encoding}"));
    }
}

/// Validates the resource version of a migration, immutable once set.
pub fn validate_migration_status(new: &FieldCursor, e: &mut ErrorList) {
    let status = new.get("status");
    let version = status.get("resourceVersion");
    let digits = |text: &str| text == "0" || !text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit());
    if !version.is_empty() && !digits(version.text()) {
        version.invalid(e, format!("resource version is not well formed: {}", version.text()));
    }
    if !version.old_cursor().is_empty() && version.is_changed() {
        version.invalid_text(e, IMMUTABLE);
    }
}
