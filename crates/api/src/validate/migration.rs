//! Migrations of what is stored, and what servers report of it, as far as the tables cannot say what is right.

use super::{Errors, at::At, error::Bad, names, rules::Functions};

pub(super) const FUNCTIONS: Functions = functions! { decodable migration_status };

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
fn decodable(server: &At, e: &mut Errors) {
    let (encoding, decodable) = (server.text_of("encodingVersion"), server.get("decodableVersions"));
    if !decodable.has(encoding) {
        decodable.invalid(e, format!("decodableVersions must include encodingVersion {encoding}"));
    }
}

/// A migration ends once, and is about one revision.
fn migration_status(new: &At, e: &mut Errors) {
    let (status, old) = (new.get("status"), new.before());
    let before = old.get("status");
    let (version, list) = (status.get("resourceVersion"), status.get("conditions"));
    let digits = |text: &str| text == "0" || !text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit());
    if !version.is_empty() && !digits(version.text()) {
        version.invalid(e, format!("resource version is not well formed: {}", version.text()));
    }
    if !before.get("resourceVersion").is_empty() && version.differs() {
        version.invalid_text(e, super::at::IMMUTABLE);
    }
    let is = |status: &At, kind: &str| {
        status.get("conditions").find("type", kind).is_some_and(|condition| condition.text_of("status") == "True")
    };
    let mut wrong = |message: &str| list.invalid_as(e, Bad::of("meta/v1.Condition", list.value), message);
    if is(&status, "Succeeded") && is(&status, "Failed") {
        wrong("Both success and failed conditions cannot be true at the same time");
    }
    if is(&before, "Succeeded") && !is(&status, "Succeeded") {
        wrong("Success condition cannot be set to false once it is true");
    }
    if is(&before, "Failed") && !is(&status, "Failed") {
        wrong("Failed condition cannot be set to false once it is true");
    }
}
