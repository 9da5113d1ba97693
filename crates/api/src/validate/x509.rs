//! Parses and verifies X.509 certificates, requests and keys for validation.

use x509_parser::{
    asn1_rs::BitString,
    prelude::{AlgorithmIdentifier, FromDer, SubjectPublicKeyInfo, X509Certificate, X509CertificationRequest},
    public_key::PublicKey,
    verify::verify_signature,
};

use crate::field_error::BadValue;

const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
const ECDSA_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const CURVES: [(&str, &str); 3] =
    [("1.2.840.10045.3.1.7", "P-256"), ("1.3.132.0.34", "P-384"), ("1.3.132.0.35", "P-521")];

/// Parses a DER value without trailing bytes.
fn parse_exact<'b, T: FromDer<'b, x509_parser::error::X509Error>>(bytes: &'b [u8]) -> Option<T> {
    T::from_der(bytes).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, value)| value)
}

/// Parses a certificate.
pub(super) fn parse_certificate(bytes: &[u8]) -> Option<X509Certificate<'_>> {
    parse_exact(bytes)
}

/// Parses a certificate request.
pub(super) fn parse_certificate_request(bytes: &[u8]) -> Option<X509CertificationRequest<'_>> {
    parse_exact(bytes)
}

/// Parses a public key.
pub(super) fn parse_public_key(bytes: &[u8]) -> Option<SubjectPublicKeyInfo<'_>> {
    parse_exact(bytes)
}

/// Returns the error about an unsupported public key, with its rendering.
pub(super) fn public_key_error(key: &SubjectPublicKeyInfo) -> Option<(BadValue, &'static str)> {
    let unknown = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) if [3072, 4096].contains(&rsa.key_size()) => None,
        Ok(PublicKey::RSA(rsa)) => {
            let shown = format!("{}-bit modulus", rsa.key_size());
            Some((shown.into(), "RSA keys must have modulus size 3072 or 4096"))
        }
        Ok(PublicKey::EC(_)) if curve_name(key).is_some() => None,
        Ok(PublicKey::EC(_)) => Some(("curve P-224".into(), "elliptic public keys must use curve P256, P384, or P521")),
        _ if is_ed25519(key) => None,
        _ => Some((BadValue::Omitted, unknown)),
    }
}

fn is_ed25519(key: &SubjectPublicKeyInfo) -> bool {
    key.algorithm.algorithm.to_id_string() == "1.3.101.112"
}

fn curve_name(key: &SubjectPublicKeyInfo) -> Option<&'static str> {
    let id = key.algorithm.parameters.as_ref()?.as_oid().ok()?.to_id_string();
    CURVES.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

/// The message about a key whose signatures only upstream can verify.
pub(super) fn unsupported_signature_key(key: &SubjectPublicKeyInfo) -> Option<&'static str> {
    let why = "signatures by keys on P-521 are not supported by this server; use P-256, P-384, Ed25519 or RSA";
    (curve_name(key) == Some("P-521")).then_some(why)
}

/// The message about a key whose bare signatures only upstream can verify.
pub(super) fn unsupported_proof_key(key: &SubjectPublicKeyInfo) -> Option<&'static str> {
    let why = "proofs of possession by RSA keys are not supported by this server; use stubPKCS10Request";
    let rsa = matches!(key.parsed(), Ok(PublicKey::RSA(_)));
    unsupported_signature_key(key).or(rsa.then_some(why))
}

/// Verifies a signature by Ed25519, P-256 or P-384.
pub(super) fn verify_proof(key: &SubjectPublicKeyInfo, data: &[u8], signature: &[u8]) -> bool {
    let algorithm = if is_ed25519(key) { ED25519 } else { ECDSA_SHA256 };
    let Some(algorithm) = parse_exact::<AlgorithmIdentifier>(algorithm) else { return false };
    verify_signature(key, &algorithm, &BitString::new(0, signature), data).is_ok()
}
