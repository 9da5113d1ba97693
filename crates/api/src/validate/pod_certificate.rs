//! Certificates for pods: what is asked for, and what is issued, and whether it is issued now where the clock is known.

use super::{pem, prelude::*, x509};
use crate::duration;
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use x509_parser::prelude::{ASN1Time, X509Certificate};

const KNOWN: &[&str] = &["Issued", "Denied", "Failed"];
const MOST_BYTES: usize = 10 * 1024;

fn bytes(at: &At) -> Vec<u8> {
    BASE64_STANDARD.decode(at.text()).unwrap_or_default()
}

/// Whoever asks has the key: by a request that is signed with it, or by a signature of the pod's own number.
pub fn possession(spec: &At, e: &mut Errors) {
    let (request, key, proof) =
        (spec.get("stubPKCS10Request"), spec.get("pkixPublicKey"), spec.get("proofOfPossession"));
    match (!request.is_empty(), !key.is_empty(), !proof.is_empty()) {
        _ if !spec.get("maxExpirationSeconds").exists() => {}
        (true, false, false) => signed_request(&request, e),
        (false, true, true) => signed_number(spec, &key, &proof, e),
        _ => {
            let message = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            spec.invalid_as(e, Bad::Omitted, message);
        }
    }
}

fn signed_request(at: &At, e: &mut Errors) {
    let given = bytes(at);
    if given.len() > MOST_BYTES {
        return at.too_long(e, MOST_BYTES);
    }
    let Some(request) = x509::request(&given) else {
        return at.invalid_as(e, Bad::Omitted, "must be a valid PKCS#10 CSR");
    };
    let key = &request.certification_request_info.subject_pki;
    if let Some((shown, message)) = x509::key_fault(key) {
        at.invalid_as(e, shown, message);
    } else if let Some(why) = x509::unverifiable(key) {
        at.invalid_as(e, Bad::Omitted, why);
    } else if request.verify_signature().is_err() {
        at.invalid_as(e, Bad::Omitted, "invalid signature");
    }
}

fn signed_number(spec: &At, key: &At, proof: &At, e: &mut Errors) {
    let (given, signature) = (bytes(key), bytes(proof));
    for (at, length) in [(key, given.len()), (proof, signature.len())] {
        if length > MOST_BYTES {
            return at.too_long(e, MOST_BYTES);
        }
    }
    let Some(parsed) = x509::key(&given) else {
        return key.invalid(e, "must be a valid PKIX-serialized public key");
    };
    if let Some((shown, message)) = x509::key_fault(&parsed) {
        key.invalid_as(e, shown, message);
    } else if let Some(why) = x509::unprovable(&parsed) {
        key.invalid_as(e, Bad::Omitted, why);
    } else if !x509::proves(&parsed, spec.text_of("podUID").as_bytes(), &signature) {
        proof.invalid_as(e, Bad::Omitted, "could not verify proof-of-possession signature");
    }
}

/// The faults of an answer to a request: it is given once, and is about the key that was asked for.
pub fn pod_certificate_status(new: &At, e: &mut Errors) {
    let status = new.get("status");
    let done = |status: &At| KNOWN.iter().any(|kind| is(status, kind));
    let mut wrong = |message: &str| status.invalid_as(e, Bad::Omitted, message);
    if done(&status.before()) {
        if status.differs() {
            wrong("immutable after PodCertificateRequest is issued, denied, or failed");
        }
    } else if is(&status, "Denied") || is(&status, "Failed") {
        let others = status.value.as_object().into_iter().flatten().any(|(field, _)| field != "conditions");
        if others {
            wrong("non-condition status fields must be empty when denying or failing the PodCertificateRequest");
        }
    } else if is(&status, "Issued") {
        issued(new, &status, e);
    } else if !same(status.value, status.old) {
        wrong("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"");
    }
}

fn is(status: &At, kind: &str) -> bool {
    status.get("conditions").find("type", kind).is_some_and(|condition| condition.text_of("status") == "True")
}

fn issued(new: &At, status: &At, e: &mut Errors) {
    let chain = status.get("certificateChain");
    if chain.text().len() > 100 * 1024 {
        return chain.too_long(e, 100 * 1024);
    }
    let blocks = pem::blocks(chain.text());
    let Some(leaf) = blocks.first() else {
        return chain.invalid_text(e, "issued certificate chain must contain at least one certificate");
    };
    if leaf.label != "CERTIFICATE" {
        return chain.invalid_text(e, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let Some(certificate) = x509::certificate(&leaf.bytes) else {
        return chain.invalid_text(e, "leaf certificate does not parse as valid X.509");
    };
    if !is_for_requested_key(&new.get("spec"), &certificate) {
        return chain.invalid_text(e, "leaf certificate was not issued to the requested public key");
    }
    let before = e.len();
    validity(new, status, &certificate, e);
    if e.len() > before {
        return;
    }
    for block in &blocks[1..] {
        if block.label != "CERTIFICATE" {
            return chain.invalid_text(e, "issued certificate chain must consist entirely of CERTFICATE PEM blocks");
        }
        if x509::certificate(&block.bytes).is_none() {
            return chain.invalid_text(e, "intermediate certificate does not parse as valid X.509");
        }
    }
}

fn is_for_requested_key(spec: &At, certificate: &X509Certificate) -> bool {
    let (request, key) = (bytes(&spec.get("stubPKCS10Request")), bytes(&spec.get("pkixPublicKey")));
    let of_request = x509::request(&request);
    let of_key = x509::key(&key);
    let wanted = of_request.as_ref().map(|request| request.certification_request_info.subject_pki.raw);
    let wanted = wanted.or(of_key.as_ref().map(|key| key.raw));
    wanted == Some(certificate.public_key().raw)
}

/// The times that the status tells are those of the certificate, and leave time to renew it.
fn validity(new: &At, status: &At, certificate: &X509Certificate, e: &mut Errors) {
    let (from, to, refresh) = (status.get("notBefore"), status.get("notAfter"), status.get("beginRefreshAt"));
    let consistent = "must be present and consistent with the issued certificate";
    for (time, message) in [
        (&from, consistent),
        (&to, consistent),
        (&refresh, "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if !time.exists() {
            time.required(e, message);
        }
    }
    let second = |at: &At| at.text().parse::<Timestamp>().map(Timestamp::as_second).ok();
    let own = |time: ASN1Time| time.timestamp();
    let validity = certificate.validity();
    let (Some(begin), Some(end), Some(renew)) = (second(&from), second(&to), second(&refresh)) else { return };
    let most = new.get("spec").get("maxExpirationSeconds").int();
    let lifetime = own(validity.not_after) - own(validity.not_before);
    let shown = Bad::Shown(duration::write(lifetime.saturating_mul(1_000_000_000)));
    let chain = status.get("certificateChain");
    if begin != own(validity.not_before) {
        from.invalid(e, "must be set to the NotBefore time encoded in the leaf certificate");
    } else if new.now().is_some_and(|now| (begin - now).abs() >= 300) {
        from.invalid(e, "must be set to within 5 minutes of kube-apiserver's current time");
    } else if end != own(validity.not_after) {
        to.invalid(e, "must be set to the NotAfter time encoded in the leaf certificate");
    } else if lifetime < 3600 {
        chain.invalid_as(e, shown, "leaf certificate lifetime must be >= 1 hour");
    } else if lifetime > most {
        let message = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        chain.invalid_as(e, shown, message);
    } else if renew < begin + 600 {
        refresh.invalid(e, "must be at least 10 minutes after status.notBefore");
    } else if renew > end - 600 {
        refresh.invalid(e, "must be at least 10 minutes before status.notAfter");
    }
}
