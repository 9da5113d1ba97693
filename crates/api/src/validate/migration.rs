//! Validation of migrations between stored versions, and of what servers report of them.

use super::{Errors, at::At, names};

/// The faults of a migration.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let resource = spec.get("resource");
    let (name, group) = (resource.get("resource"), resource.get("group"));
    if name.is_empty() {
        name.required(e, "resource is required to be set");
    } else if !names::label_1035(name.text()).is_empty() {
        name.invalid_text(e, names::label_1035(name.text()).join(","));
    }
    if !group.is_empty() && !names::subdomain(group.text()).is_empty() {
        group.invalid_text(e, names::subdomain(group.text()).join(","));
    }
    if let Some(old) = old {
        spec.unchanged(e, &old.get("spec"));
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

/// The faults of what servers report of stored versions.
pub(super) fn storage_version(new: &At, _: Option<&At>, e: &mut Errors) {
    let status = new.get("status");
    let mut seen = Vec::new();
    for server in status.get("storageVersions").items() {
        let (id, encoding, decodable) =
            (server.get("apiServerID"), server.get("encodingVersion"), server.get("decodableVersions"));
        if seen.contains(&id.text()) {
            id.duplicate(e, id.text());
        }
        seen.push(id.text());
        id.form(e, names::subdomain);
        if !decodable.texts().any(|version| version == encoding.text()) {
            decodable.invalid(e, format!("decodableVersions must include encodingVersion {}", encoding.text()));
        }
    }
}
