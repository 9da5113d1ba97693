//! Validation of PodCertificateRequests: keys and proofs, and issued certificates, including their times if the clock
//! is known.

use super::{pem, prelude::*, x509};
use crate::duration;
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use x509_parser::prelude::{ASN1Time, X509Certificate};

const FINAL_CONDITIONS: &[&str] = &["Issued", "Denied", "Failed"];
const MOST_BYTES: usize = 10 * 1024;

fn decode_base64(at: &FieldCursor) -> Vec<u8> {
    BASE64_STANDARD.decode(at.text()).unwrap_or_default()
}

/// Validates the proof of possession: a signed PKCS#10 request, or a signature of the pod UID.
pub fn validate_possession(spec: &FieldCursor, e: &mut ErrorList) {
    let (request, key, proof) =
        (spec.get("stubPKCS10Request"), spec.get("pkixPublicKey"), spec.get("proofOfPossession"));
    match (!request.is_empty(), !key.is_empty(), !proof.is_empty()) {
        _ if !spec.get("maxExpirationSeconds").exists() => {}
        (true, false, false) => validate_pkcs10_request(&request, e),
        (false, true, true) => validate_proof_of_possession(spec, &key, &proof, e),
        _ => {
            let message = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            spec.invalid_as(e, BadValue::Omitted, message);
        }
    }
}

fn validate_pkcs10_request(at: &FieldCursor, e: &mut ErrorList) {
    let given = decode_base64(at);
    if given.len() > MOST_BYTES {
        return at.too_long(e, MOST_BYTES);
    }
    let Some(request) = x509::parse_certificate_request(&given) else {
        return at.invalid_as(e, BadValue::Omitted, "must be a valid PKCS#10 CSR");
    };
    let key = &request.certification_request_info.subject_pki;
    if let Some((shown, message)) = x509::public_key_error(key) {
        at.invalid_as(e, shown, message);
    } else if let Some(why) = x509::unsupported_signature_key(key) {
        at.invalid_as(e, BadValue::Omitted, why);
    } else if request.verify_signature().is_err() {
        at.invalid_as(e, BadValue::Omitted, "invalid signature");
    }
}

fn validate_proof_of_possession(spec: &FieldCursor, key: &FieldCursor, proof: &FieldCursor, e: &mut ErrorList) {
    let (given, signature) = (decode_base64(key), decode_base64(proof));
    for (at, length) in [(key, given.len()), (proof, signature.len())] {
        if length > MOST_BYTES {
            return at.too_long(e, MOST_BYTES);
        }
    }
    let Some(parsed) = x509::parse_public_key(&given) else {
        return key.invalid(e, "must be a valid PKIX-serialized public key");
    };
    if let Some((shown, message)) = x509::public_key_error(&parsed) {
        key.invalid_as(e, shown, message);
    } else if let Some(why) = x509::unsupported_proof_key(&parsed) {
        key.invalid_as(e, BadValue::Omitted, why);
    } else if !x509::verify_proof(&parsed, spec.text_at("podUID").as_bytes(), &signature) {
        proof.invalid_as(e, BadValue::Omitted, "could not verify proof-of-possession signature");
    }
}

/// Validates a status update: final once set, and issued to the requested key.
pub fn validate_pod_certificate_status(new: &FieldCursor, e: &mut ErrorList) {
    let status = new.get("status");
    let done = |status: &FieldCursor| FINAL_CONDITIONS.iter().any(|kind| has_condition(status, kind));
    let mut wrong = |message: &str| status.invalid_as(e, BadValue::Omitted, message);
    if done(&status.old_cursor()) {
        if status.is_changed() {
            wrong("immutable after PodCertificateRequest is issued, denied, or failed");
        }
    } else if has_condition(&status, "Denied") || has_condition(&status, "Failed") {
        let others = status.value.as_object().into_iter().flatten().any(|(field, _)| field != "conditions");
        if others {
            wrong("non-condition status fields must be empty when denying or failing the PodCertificateRequest");
        }
    } else if has_condition(&status, "Issued") {
        validate_issued_chain(new, &status, e);
    } else if !semantically_equal(status.value, status.old) {
        wrong("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"");
    }
}

fn has_condition(status: &FieldCursor, kind: &str) -> bool {
    status.get("conditions").find_by("type", kind).is_some_and(|condition| condition.text_at("status") == "True")
}

fn validate_issued_chain(new: &FieldCursor, status: &FieldCursor, e: &mut ErrorList) {
    let chain = status.get("certificateChain");
    if chain.text().len() > 100 * 1024 {
        return chain.too_long(e, 100 * 1024);
    }
    let blocks = pem::parse_pem_blocks(chain.text());
    let Some(leaf) = blocks.first() else {
        return chain.invalid_text(e, "issued certificate chain must contain at least one certificate");
    };
    if leaf.label != "CERTIFICATE" {
        return chain.invalid_text(e, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let Some(certificate) = x509::parse_certificate(&leaf.bytes) else {
        return chain.invalid_text(e, "leaf certificate does not parse as valid X.509");
    };
    if !is_for_requested_key(&new.get("spec"), &certificate) {
        return chain.invalid_text(e, "leaf certificate was not issued to the requested public key");
    }
    let before = e.len();
    validate_validity_period(new, status, &certificate, e);
    if e.len() > before {
        return;
    }
    for block in &blocks[1..] {
        if block.label != "CERTIFICATE" {
            return chain.invalid_text(e, "issued certificate chain must consist entirely of CERTFICATE PEM blocks");
        }
        if x509::parse_certificate(&block.bytes).is_none() {
            return chain.invalid_text(e, "intermediate certificate does not parse as valid X.509");
        }
    }
}

fn is_for_requested_key(spec: &FieldCursor, certificate: &X509Certificate) -> bool {
    let (request, key) = (decode_base64(&spec.get("stubPKCS10Request")), decode_base64(&spec.get("pkixPublicKey")));
    let of_request = x509::parse_certificate_request(&request);
    let of_key = x509::parse_public_key(&key);
    let wanted = of_request.as_ref().map(|request| request.certification_request_info.subject_pki.raw);
    let wanted = wanted.or(of_key.as_ref().map(|key| key.raw));
    wanted == Some(certificate.public_key().raw)
}

/// Validates that the times equal those of the certificate and leave time for renewal.
fn validate_validity_period(new: &FieldCursor, status: &FieldCursor, certificate: &X509Certificate, e: &mut ErrorList) {
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
    let second = |at: &FieldCursor| at.text().parse::<Timestamp>().map(Timestamp::as_second).ok();
    let own = |time: ASN1Time| time.timestamp();
    let validity = certificate.validity();
    let (Some(begin), Some(end), Some(renew)) = (second(&from), second(&to), second(&refresh)) else { return };
    let most = new.get("spec").get("maxExpirationSeconds").int();
    let lifetime = own(validity.not_after) - own(validity.not_before);
    let shown = BadValue::Rendered(duration::format(lifetime.saturating_mul(1_000_000_000)));
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
