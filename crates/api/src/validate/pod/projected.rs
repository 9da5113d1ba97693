//! Volumes that are made of several sources: secrets, configuration, facts of the pod, tokens, certificates.

use super::{env, volume};
use crate::validate::{Errors, at::At, certificates, names, rules::Functions};

pub(super) const FUNCTIONS: Functions = functions! {
    downward_file one_projection projected_paths token_path named_bundle user_annotations longest_expiration
};

/// The fields of a pod that a file may have.
const FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

/// The faults of a file with facts of the pod. Upstream tells them without the index.
fn downward_file(file: &At, e: &mut Errors) {
    let at = file.up(2);
    let name = at.called("path", file.get("path").value);
    name.require(e);
    name.form(e, names::inner);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.exists() {
        env::field(&at.called("fieldRef", field.value), FIELDS, e);
        if resource.exists() {
            at.invalid_as(e, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if resource.exists() {
        env::resource(&at.called("resourceFieldRef", resource.value), true, e);
    } else {
        at.required(e, "one of fieldRef and resourceFieldRef is required");
    }
    volume::mode(&at.called("mode", file.get("mode").value), e);
}

fn one_projection(source: &At, e: &mut Errors) {
    if KINDS.iter().filter(|kind| source.value.get(kind).is_some()).count() > 1 {
        source.forbidden(e, "may not specify more than 1 volume type per source");
    }
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

/// Upstream tells a wrong path of a token at the volume.
fn token_path(part: &At, e: &mut Errors) {
    let at = part.up(3);
    let name = at.called("path", part.get("path").value);
    name.required_form(e, names::inner);
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

/// Kubernetes' own signers give certificates for a day, others for a quarter.
fn longest_expiration(at: &At, e: &mut Errors) {
    let most = if at.up(1).text_of("signerName").starts_with("kubernetes.io/") { 86_400 } else { 91 * 86_400 };
    if at.int() > most {
        at.invalid(e, format!("if provided, maxExpirationSeconds must be <= {most}"));
    }
}
