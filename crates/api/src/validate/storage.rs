//! Storage classes, what drivers say of themselves, and migrations of what is stored, as far as the tables cannot say what is right.

use super::prelude::*;

const MOST_BYTES: usize = 256 * 1024;

pub fn provisioner(at: &At, e: &mut Errors) {
    at.form_as(e, &at.text().to_lowercase(), names::qualified);
}

fn size(map: &At) -> usize {
    map.entries().map(|(key, value)| key.len() + value.text().len()).sum()
}

pub fn parameters(at: &At, e: &mut Errors) {
    if at.len() > 512 {
        return at.too_long(e, 512);
    }
    if at.entries().any(|(key, _)| key.is_empty()) {
        at.invalid_as(e, "", "field can not be empty.");
    }
    if size(at) > MOST_BYTES {
        at.too_long(e, MOST_BYTES);
    }
}

/// The faults of where volumes of a class may be.
pub fn topologies(list: &At, e: &mut Errors) {
    // Upstream begins with as many empty terms as there are terms.
    let mut seen: Vec<Vec<(String, Vec<String>)>> = vec![Vec::new(); list.len()];
    for term in list.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut keys: Vec<(String, Vec<String>)> = Vec::new();
        for requirement in expressions.items() {
            let (key, values) = (requirement.get("key"), requirement.get("values"));
            values.require(e);
            let mut texts: Vec<String> = Vec::new();
            for value in values.items() {
                if texts.iter().any(|text| text == value.text()) {
                    value.duplicate(e, value.text());
                }
                texts.push(value.text().to_owned());
            }
            key.form(e, names::qualified);
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

pub fn attachment_metadata(at: &At, e: &mut Errors) {
    if size(at) > MOST_BYTES {
        at.too_long(e, MOST_BYTES);
    }
}

/// Upstream names another limit than it has.
pub fn error_message(at: &At, e: &mut Errors) {
    if at.text().len() > 1024 {
        at.too_long(e, MOST_BYTES);
    }
}

/// Upstream tells faults of keys at the driver.
pub fn topology_keys(driver: &At, e: &mut Errors) {
    let keys = driver.get("topologyKeys");
    for (at, key) in keys.texts().enumerate() {
        if key.is_empty() {
            driver.required(e, "");
        }
        if keys.texts().take(at).any(|other| other == key) {
            driver.duplicate(e, key);
        }
        driver.form_as(e, key, names::qualified);
    }
}

/// A driver of a node stays as it is, but for what it can take.
pub fn drivers_kept(list: &At, e: &mut Errors) {
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|map| map.remove("allocatable"));
        driver
    };
    for was in list.old.as_array().into_iter().flatten() {
        for driver in list.items().filter(|driver| driver.value["name"] == was["name"]) {
            let now = fixed(driver.value);
            if !same(&now, &fixed(was)) {
                list.invalid_as(e, Bad::of("storage/v1.CSINodeDriver", &now), IMMUTABLE);
            }
        }
    }
}

/// Tokens are asked for once per audience; of two alike only the first is looked at.
pub fn token_requests(list: &At, e: &mut Errors) {
    let mut seen = Vec::new();
    for request in list.items() {
        let audience = request.get("audience");
        if seen.contains(&audience.text()) {
            audience.duplicate(e, audience.text());
            continue;
        }
        seen.push(audience.text());
        if request.get("expirationSeconds").exists() {
            rules::check("TokenSeconds", &request.get("expirationSeconds"), e);
        }
    }
}

/// What is wrong with the name of a stored version: `<group>.<resource>`.
pub(super) fn storage_version_name(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = names::subdomain(group).into_iter().map(|fault| format!("the group segment {fault}"));
    let resource = names::label_1035(resource).into_iter().map(|fault| format!("the resource segment {fault}"));
    group.chain(resource).collect()
}

/// What a server writes, it can read.
pub fn decodable(server: &At, e: &mut Errors) {
    let (encoding, decodable) = (server.text_of("encodingVersion"), server.get("decodableVersions"));
    if !decodable.has(encoding) {
        decodable.invalid(e, format!("decodableVersions must include encodingVersion {encoding}"));
    }
}

/// A migration is about one revision.
pub fn migration_status(new: &At, e: &mut Errors) {
    let status = new.get("status");
    let version = status.get("resourceVersion");
    let digits = |text: &str| text == "0" || !text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit());
    if !version.is_empty() && !digits(version.text()) {
        version.invalid(e, format!("resource version is not well formed: {}", version.text()));
    }
    if !version.before().is_empty() && version.differs() {
        version.invalid_text(e, IMMUTABLE);
    }
}
