//! Volumes that are made of several sources: secrets, configuration, facts of the pod, tokens, certificates.

use super::env;
use crate::validate::certificates;
use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    file_field file_resource projected_paths named_bundle user_annotations
};

/// The fields of a pod that a file may have.
const FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

fn file_field(at: &At, e: &mut Errors) {
    env::field(at, FIELDS, e);
}

fn file_resource(at: &At, e: &mut Errors) {
    env::resource(at, true, e);
}

/// A path can be taken by one source.
fn projected_paths(at: &At, e: &mut Errors) {
    let mut paths: Vec<&str> = Vec::new();
    for source in at.get("sources").items() {
        for kind in KINDS {
            let part = source.get(kind);
            let mut claim = |path, shown: &str| {
                if paths.contains(&path) {
                    at.invalid_as(e, shown, "conflicting duplicate paths");
                }
                if !path.is_empty() {
                    paths.push(path);
                }
            };
            let named = matches!(kind, "secret" | "configMap");
            for path in part.get("items").items().map(|item| item.text_of("path")) {
                claim(path, if named { part.text_of("name") } else { path });
            }
            let own: &[&str] = match kind {
                "clusterTrustBundle" => &["path"],
                "podCertificate" => &["credentialBundlePath", "keyPath", "certificateChainPath"],
                _ => &[],
            };
            own.iter().for_each(|field| claim(part.text_of(field), part.text_of(field)));
        }
    }
}

fn named_bundle(name: &At, e: &mut Errors) {
    for fault in certificates::bundle_name(name.text()) {
        name.invalid_text(e, format!("not a valid clustertrustbundlename: {fault}"));
    }
}

/// The faults of annotations for a signer: they have a domain.
fn user_annotations(notes: &At, e: &mut Errors) {
    for (key, _) in notes.entries() {
        let key = key.to_lowercase();
        let before = e.len();
        notes.form_as(e, &key, names::qualified);
        if e.len() == before && !key.contains('/') {
            notes.invalid_as(e, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
    }
}
