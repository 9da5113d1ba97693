//! Requests for certificates and bundles of trust, as far as the tables cannot say what is right.

use super::{pem, prelude::*, x509};
use base64::{Engine, prelude::BASE64_STANDARD};

const USAGES: &str = "any,cert sign,client auth,code signing,content commitment,crl sign,data encipherment,decipher only,\
    digital signature,email protection,encipher only,ipsec end system,ipsec tunnel,ipsec user,key agreement,key encipherment,\
    microsoft sgc,netscape sgc,ocsp signing,s/mime,server auth,signing,timestamping";
const DECIDED: [&str; 3] = ["Approved", "Denied", "Failed"];

pub fn signing_request(request: &At, e: &mut Errors) {
    let bytes = BASE64_STANDARD.decode(request.text()).unwrap_or_default();
    let blocks = pem::blocks(&String::from_utf8_lossy(&bytes));
    if blocks.first().is_none_or(|block| block.label != "CERTIFICATE REQUEST") {
        request.invalid(e, "PEM block type must be CERTIFICATE REQUEST");
    } else if blocks.first().is_some_and(|block| x509::request(&block.bytes).is_none()) {
        request.invalid(e, "asn1: structure error");
    }
}

/// Usages are known ones, each once; what was let pass before stays allowed.
pub fn usages(usages: &At, e: &mut Errors) {
    let known: Vec<&str> = USAGES.split(',').collect();
    if usages.before().texts().all(|usage| known.contains(&usage)) {
        usages.items().for_each(|usage| usage.one_of(e, &known));
    }
    if !usages.is_change() {
        usages.unique(|usage| usage.text(), |usage, text| usage.duplicate(e, text));
    }
}

pub fn requested_signer(signer: &At, e: &mut Errors) {
    const LEGACY: &str = "kubernetes.io/legacy-unknown";
    if signer.text() == LEGACY && signer.before().text() != LEGACY {
        return signer.invalid_text(e, "the legacy signerName is not allowed via this API version");
    }
    signer_name(signer, e);
}

/// A request is approved or denied, once.
pub fn request_conditions(list: &At, e: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        rules::check("RequestCondition", &condition, e);
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

/// The faults of a certificate that was issued; an old one stays allowed.
pub fn issued_certificate(at: &At, e: &mut Errors) {
    if at.is_empty() || at.is_change() && at.old == at.value {
        return;
    }
    let bytes = BASE64_STANDARD.decode(at.text()).unwrap_or_default();
    let blocks = pem::blocks(&String::from_utf8_lossy(&bytes));
    let wrong = blocks.iter().find(|block| block.label != "CERTIFICATE");
    let fault = match wrong {
        Some(block) => format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label),
        None if blocks.is_empty() => "must contain at least one CERTIFICATE PEM block".to_owned(),
        None if blocks.iter().any(|block| block.has_headers) => "no PEM block headers are permitted".to_owned(),
        None if blocks.iter().any(|block| x509::certificate(&block.bytes).is_none()) => {
            "x509: malformed certificate".to_owned()
        }
        None => return,
    };
    at.invalid_as(e, "<certificate data>", fault);
}

/// The faults of a changed request; `part` is the subresource that it is changed through, or nothing.
pub fn request_change(new: &At, part: &str, e: &mut Errors) {
    let old = new.before();
    let (status, before) = (new.get("status"), old.get("status"));
    let list = status.get("conditions");
    let of = |status: &At, kind: &str| -> Vec<Value> {
        let list = status.get("conditions").value.as_array().cloned().unwrap_or_default();
        list.into_iter().filter(|condition| condition["type"] == kind).collect()
    };
    for kind in DECIDED {
        if of(&status, kind).len() < of(&before, kind).len() {
            list.forbidden(e, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in ["Approved", "Denied"].into_iter().filter(|_| part != "approval") {
        let (now, was) = (of(&status, kind), of(&before, kind));
        if now.len() > was.len() {
            list.forbidden(e, format!("updates may not add a condition of type {kind:?}"));
        } else if now.len() == was.len() && !same(&now.clone().into(), &was.clone().into()) {
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

/// The faults of the name of a signer: `example.com/signer-name`.
pub fn signer_name(at: &At, e: &mut Errors) {
    if !at.require(e) {
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
    segments(at, domain, names::label, e);
    if !domain.contains('.') {
        at.invalid_as(e, domain, "should be a domain with at least two segments separated by dots");
    }
    segments(at, path, names::subdomain, e);
    if at.text().len() > 571 {
        at.too_long(e, 571);
    }
}

/// Of several wrong parts the first is told.
fn segments(at: &At, text: &str, form: fn(&str) -> Vec<String>, e: &mut Errors) {
    if let Some(label) = text.split('.').find(|label| !form(label).is_empty()) {
        for fault in form(label) {
            at.invalid_as(e, text, format!("validating label {label:?}: {fault}"));
        }
    }
}

/// What is wrong with the name of a bundle, whose signer its name tells.
pub(super) fn bundle_name(name: &str) -> Vec<String> {
    match name.rsplit_once(':') {
        Some((signer, _)) => bundle_name_for(&signer.replace(':', "/"), name),
        None => bundle_name_for("", name),
    }
}

fn bundle_name_for(signer: &str, name: &str) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::subdomain(name);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::subdomain(rest),
        None => vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")],
    }
}

pub fn bundle_is_named_after_signer(bundle: &At, e: &mut Errors) {
    let (spec, meta) = (bundle.get("spec"), bundle.get("metadata"));
    let name = meta.get("name");
    for fault in bundle_name_for(spec.text_of("signerName"), name.text()) {
        name.invalid_text(e, fault);
    }
}

/// The faults of a bundle; an old one stays allowed.
pub fn trust_bundle(at: &At, e: &mut Errors) {
    if at.is_change() && at.old == at.value {
        return;
    }
    const HIDDEN: &str = "<value omitted>";
    const MOST_BYTES: usize = 1024 * 1024;
    if at.text().len() > MOST_BYTES {
        return at.too_long(e, MOST_BYTES);
    }
    let blocks = pem::blocks(at.text());
    let start = e.len();
    for (index, block) in blocks.iter().enumerate() {
        let fault = match block {
            block if block.label != "CERTIFICATE" => format!("entry {index} has bad block type: {}", block.label),
            block if block.has_headers => format!("entry {index} has PEM block headers"),
            block => match x509::certificate(&block.bytes) {
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
