//! Validation of volumes that are made of several sources: secrets, configuration, facts of the pod, tokens, certificates.

use super::{env, volume};
use crate::validate::{Errors, at::At, certificates, names, path, selector};

/// The fields of a pod that a file may have.
const FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const CONFLICT: &str = "conflicting duplicate paths";

/// The faults of a volume of facts of the pod. Upstream tells them without the index.
pub(super) fn downward(at: &At, e: &mut Errors) {
    volume::mode(&at.get("defaultMode"), e);
    for file in at.get("items").items() {
        downward_file(&file, at, e);
    }
}

fn downward_file(file: &At, at: &At, e: &mut Errors) {
    let name = at.called("path", file.get("path").value);
    name.require(e);
    path::not_reserved(&name, e);
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

/// The faults of a volume of several sources.
pub(super) fn check(at: &At, e: &mut Errors) {
    volume::mode(&at.get("defaultMode"), e);
    let mut paths: Vec<&str> = Vec::new();
    for source in at.get("sources").items() {
        let mut count = 0;
        for kind in
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"]
        {
            let part = source.get(kind);
            if !part.exists() {
                continue;
            }
            count += 1;
            match kind {
                "secret" | "configMap" => keys(&part, at, &mut paths, e),
                "downwardAPI" => {
                    for file in part.get("items").items() {
                        downward_file(&file, &part, e);
                        let name = file.get("path").text();
                        claim(name, name, at, &mut paths, e);
                    }
                }
                "serviceAccountToken" => token(&part, at, e),
                "clusterTrustBundle" => trust_bundle(&part, at, &mut paths, e),
                _ => certificate(&part, at, &mut paths, e),
            }
        }
        if count > 1 {
            source.forbidden(e, "may not specify more than 1 volume type per source");
        }
    }
}

/// A path can be taken by one source.
fn claim<'v>(path: &'v str, shown: &str, at: &At, paths: &mut Vec<&'v str>, e: &mut Errors) {
    if path.is_empty() {
        return;
    }
    if paths.contains(&path) {
        at.invalid_as(e, shown, CONFLICT);
    }
    paths.push(path);
}

fn keys<'v>(part: &At<'v, '_>, at: &At, paths: &mut Vec<&'v str>, e: &mut Errors) {
    let name = part.get("name");
    name.require(e);
    for item in part.get("items").items() {
        volume::key_to_path(&item, e);
        claim(item.get("path").text(), name.text(), at, paths, e);
    }
}

fn token(part: &At, at: &At, e: &mut Errors) {
    let expiry = part.get("expirationSeconds");
    if expiry.int() < 600 {
        expiry.invalid_int(e, "may not specify a duration less than 10 minutes");
    }
    if expiry.int() > 1 << 32 {
        expiry.invalid_int(e, "may not specify a duration larger than 2^32 seconds");
    }
    let name = at.called("path", part.get("path").value);
    if name.require(e) {
        path::not_reserved(&name, e);
    }
}

fn trust_bundle<'v>(part: &At<'v, '_>, at: &At, paths: &mut Vec<&'v str>, e: &mut Errors) {
    let (name, signer, labels) = (part.get("name"), part.get("signerName"), part.get("labelSelector"));
    match (name.exists(), signer.exists()) {
        (true, true) => {
            let ty = "core/v1.ClusterTrustBundleProjection";
            part.invalid_internal(e, ty, "only one of name and signerName may be used");
        }
        (true, false) => {
            if name.is_empty() {
                name.required(e, "must be a valid object name");
            }
            for fault in certificates::bundle_name(name.text()) {
                name.invalid_text(e, format!("not a valid clustertrustbundlename: {fault}"));
            }
            if labels.exists() {
                labels.invalid_external(e, "meta/v1.LabelSelector", "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.is_empty() {
                signer.required(e, "must be a valid signer name");
            }
            certificates::signer_name(&signer, e);
            selector::selector(&labels, e);
        }
        (false, false) => part.required(e, "either name or signerName must be specified"),
    }
    let file = part.get("path");
    file.require(e);
    path::not_reserved(&file, e);
    claim(file.text(), file.text(), at, paths, e);
}

fn certificate<'v>(part: &At<'v, '_>, at: &At, paths: &mut Vec<&'v str>, e: &mut Errors) {
    certificates::signer_name(&part.get("signerName"), e);
    for (key, _) in part.get("userAnnotations").entries() {
        let notes = part.get("userAnnotations");
        let key = key.to_lowercase();
        let faults = names::qualified(&key);
        if faults.is_empty() && !key.contains('/') {
            notes.invalid_as(e, key.as_str(), "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
        faults.into_iter().for_each(|fault| notes.invalid_as(e, key.as_str(), fault));
    }
    if !KEY_TYPES.contains(&part.get("keyType").text()) {
        part.get("keyType").unsupported(e, KEY_TYPES);
    }
    let expiry = part.get("maxExpirationSeconds");
    if expiry.exists() {
        let most = if part.get("signerName").text().starts_with("kubernetes.io/") { 86_400 } else { 91 * 86_400 };
        if expiry.int() < 3600 {
            expiry.invalid(e, "if provided, maxExpirationSeconds must be >= 3600");
        }
        if expiry.int() > most {
            expiry.invalid(e, format!("if provided, maxExpirationSeconds must be <= {most}"));
        }
    }
    let mut count = 0;
    for name in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = part.get(name);
        if !file.is_empty() {
            count += 1;
            path::not_reserved(&file, e);
            claim(file.text(), file.text(), at, paths, e);
        }
    }
    if count == 0 {
        part.required(e, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
