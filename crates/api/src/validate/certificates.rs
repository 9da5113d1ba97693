//! Validation of CertificateSigningRequests and ClusterTrustBundles beyond the rule tables.

use super::{pem, prelude::*, x509};
use base64::{Engine, prelude::BASE64_STANDARD};

const KEY_USAGES: &str = "any,cert sign,client auth,code signing,content commitment,crl sign,data encipherment,decipher only,\
    digital signature,email protection,encipher only,ipsec end system,ipsec tunnel,ipsec user,key agreement,key encipherment,\
    microsoft sgc,netscape sgc,ocsp signing,s/mime,server auth,signing,timestamping";
const PERMANENT_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

pub fn validate_signing_request(request: &FieldCursor, e: &mut ErrorList) {
    let bytes = BASE64_STANDARD.decode(request.text()).unwrap_or_default();
    let blocks = pem::parse_pem_blocks(&String::from_utf8_lossy(&bytes));
    if blocks.first().is_none_or(|block| block.label != "CERTIFICATE REQUEST") {
        request.invalid(e, "PEM block type must be CERTIFICATE REQUEST");
    } else if blocks.first().is_some_and(|block| x509::parse_certificate_request(&block.bytes).is_none()) {
        request.invalid(e, "asn1: structure error");
    }
}

/// Validates key usages; unknown stored usages are tolerated.
pub fn validate_usages(usages: &FieldCursor, e: &mut ErrorList) {
    let known: Vec<&str> = KEY_USAGES.split(',').collect();
    if usages.old_cursor().texts().all(|usage| known.contains(&usage)) {
        usages.items().for_each(|usage| usage.require_one_of(e, &known));
    }
    if !usages.is_update() {
        usages.for_each_duplicate(|usage| usage.text(), |usage, text| usage.duplicate(e, text));
    }
}

pub fn validate_requested_signer(signer: &FieldCursor, e: &mut ErrorList) {
    const LEGACY: &str = "kubernetes.io/legacy-unknown";
    if signer.text() == LEGACY && signer.old_cursor().text() != LEGACY {
        return signer.invalid_text(e, "the legacy signerName is not allowed via this API version");
    }
    validate_signer_name(signer, e);
}

/// Rejects Approved together with Denied, and duplicate conditions.
pub fn validate_request_conditions(list: &FieldCursor, e: &mut ErrorList) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        check_block("RequestCondition", &condition, e);
        let kind = condition.get("type");
        let other = match kind.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(&other) {
            list.invalid_as(e, kind.text(), "Approved and Denied conditions are mutually exclusive");
        }
        if seen.contains(&kind.text()) {
            kind.duplicate(e, kind.text());
        }
        seen.push(kind.text());
    }
}

/// Validates the issued certificate; an unchanged one is tolerated.
pub fn validate_issued_certificate(at: &FieldCursor, e: &mut ErrorList) {
    if at.is_empty() || at.is_update() && at.old == at.value {
        return;
    }
    let bytes = BASE64_STANDARD.decode(at.text()).unwrap_or_default();
    let blocks = pem::parse_pem_blocks(&String::from_utf8_lossy(&bytes));
    let wrong = blocks.iter().find(|block| block.label != "CERTIFICATE");
    let fault = match wrong {
        Some(block) => format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label),
        None if blocks.is_empty() => "must contain at least one CERTIFICATE PEM block".to_owned(),
        None if blocks.iter().any(|block| block.has_headers) => "no PEM block headers are permitted".to_owned(),
        None if blocks.iter().any(|block| x509::parse_certificate(&block.bytes).is_none()) => {
            "x509: malformed certificate".to_owned()
        }
        None => return,
    };
    at.invalid_as(e, "<certificate data>", fault);
}

/// Validates an update; `part` is the subresource, or empty.
pub fn validate_request_change(new: &FieldCursor, part: &str, e: &mut ErrorList) {
    let old = new.old_cursor();
    let (status, before) = (new.get("status"), old.get("status"));
    let list = status.get("conditions");
    let of = |status: &FieldCursor, kind: &str| -> Vec<Value> {
        let list = status.get("conditions").value.as_array().cloned().unwrap_or_default();
        list.into_iter().filter(|condition| condition["type"] == kind).collect()
    };
    for kind in PERMANENT_CONDITIONS {
        if of(&status, kind).len() < of(&before, kind).len() {
            list.forbidden(e, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in ["Approved", "Denied"].into_iter().filter(|_| part != "approval") {
        let (now, was) = (of(&status, kind), of(&before, kind));
        if now.len() > was.len() {
            list.forbidden(e, format!("updates may not add a condition of type {kind:?}"));
        } else if now.len() == was.len() && !semantically_equal(&now.clone().into(), &was.clone().into()) {
            list.forbidden(e, format!("updates may not modify a condition of type {kind:?}"));
        }
    }
    let (certificate, was) = (status.get("certificate"), before.get("certificate"));
    if certificate.text() != was.text() {
        if part != "status" {
            certificate.forbidden(e, "updates may not set certificate content");
        } else if !was.is_empty() {
            certificate.forbidden(e, "updates may not modify existing certificate content");
        }
    }
}

/// Validates a signer name: `example.com/signer-name`.
pub fn validate_signer_name(at: &FieldCursor, e: &mut ErrorList) {
    if !at.require_value(e) {
        return;
    }
    let parts: Vec<&str> = at.text().split('/').collect();
    let [domain, path] = parts[..] else {
        let message = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return at.invalid_text(e, message);
    };
    if domain.len() > 253 {
        at.too_long(e, 253);
    }
    validate_segments(at, domain, names::check_dns_label, e);
    if !domain.contains('.') {
        at.invalid_as(e, domain, "should be a domain with at least two segments separated by dots");
    }
    validate_segments(at, path, names::check_dns_subdomain, e);
    if at.text().len() > 571 {
        at.too_long(e, 571);
    }
}

/// Validates dot-separated segments; the first invalid one is reported.
fn validate_segments(at: &FieldCursor, text: &str, form: fn(&str) -> Vec<String>, e: &mut ErrorList) {
    if let Some(label) = text.split('.').find(|label| !form(label).is_empty()) {
        for fault in form(label) {
            at.invalid_as(e, text, format!("validating label {label:?}: {fault}"));
        }
    }
}

/// Returns the errors about a bundle name with a signer prefix.
pub(super) fn bundle_name_errors(name: &str) -> Vec<String> {
    match name.rsplit_once(':') {
        Some((signer, _)) => bundle_name_errors_for(&signer.replace(':', "/"), name),
        None => bundle_name_errors_for("", name),
    }
}

fn bundle_name_errors_for(signer: &str, name: &str) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::check_dns_subdomain(name);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::check_dns_subdomain(rest),
        None => vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")],
    }
}

pub fn validate_bundle_is_named_after_signer(bundle: &FieldCursor, e: &mut ErrorList) {
    let (spec, meta) = (bundle.get("spec"), bundle.get("metadata"));
    let name = meta.get("name");
    for fault in bundle_name_errors_for(spec.text_at("signerName"), name.text()) {
        name.invalid_text(e, fault);
    }
}

/// Validates the certificates of a bundle; an unchanged bundle is tolerated.
pub fn validate_trust_bundle(at: &FieldCursor, e: &mut ErrorList) {
    if at.is_update() && at.old == at.value {
        return;
    }
    const HIDDEN: &str = "<value omitted>";
    const MOST_BYTES: usize = 1024 * 1024;
    if at.text().len() > MOST_BYTES {
        return at.too_long(e, MOST_BYTES);
    }
    let blocks = pem::parse_pem_blocks(at.text());
    let start = e.len();
    for (index, block) in blocks.iter().enumerate() {
        let fault = match block {
            block if block.label != "CERTIFICATE" => format!("entry {index} has bad block type: {}", block.label),
            block if block.has_headers => format!("entry {index} has PEM block headers"),
            block => match x509::parse_certificate(&block.bytes) {
                None => format!("entry {index} does not parse as X.509"),
                Some(certificate) if !certificate.is_ca() => format!("entry {index} does not have the CA bit set"),
                Some(_) => continue,
            },
        };
        at.invalid_as(e, HIDDEN, fault);
    }
    if e.len() > start {
        return;
    }
    if blocks.is_empty() {
        at.invalid_as(e, HIDDEN, "at least one trust anchor must be provided");
    }
    for (index, block) in blocks.iter().enumerate() {
        let alike: Vec<usize> = (0..blocks.len()).filter(|other| blocks[*other].bytes == block.bytes).collect();
        if alike.len() > 1 && alike[0] == index {
            let list = alike.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
            at.invalid_as(e, HIDDEN, format!("duplicate trust anchor (indices [{list}])"));
        }
    }
}
