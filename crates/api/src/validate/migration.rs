//! Migrations of what is stored, and what servers report of it, as far as the tables cannot say what is right.

use super::prelude::*;

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

/// A migration is about one revision.
fn migration_status(new: &At, e: &mut Errors) {
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
