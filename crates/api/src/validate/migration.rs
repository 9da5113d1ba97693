//! What servers report of stored versions, as far as the tables cannot say what is right.

use super::{Errors, at::At, names, rules::Functions};

pub(super) const FUNCTIONS: Functions = functions![decodable];

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
