//! A certificate authority that signs requests as upstream's permissive policy: subject, key and alternative names of
//! the request, usages and validity of the signer.

use std::{fs, io, path::PathBuf, time::Duration};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, pem::PemObject},
    sign::SigningKey,
};
use x509_parser::{extensions::ParsedExtension, prelude::FromDer};

use super::request::ParsedRequest;
use crate::SigningKeyPair;

/// Time before the signature from which a certificate is valid.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Validity below which the end is not backdated.
const SHORT_VALIDITY: Duration = Duration::from_secs(8 * 3600);
/// The shortest validity that a request can ask for.
const MIN_VALIDITY: Duration = Duration::from_secs(600);
/// Bits of `keyUsage` by usage.
const KEY_USAGES: [(&str, u8); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];
/// DER contents of extended key usage OIDs by usage, in the order of certificates.
const EXTENDED_USAGES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];
/// Signature schemes and the DER of their AlgorithmIdentifier.
const SCHEMES: [(SignatureScheme, &[u8]); 4] = [
    (SignatureScheme::RSA_PKCS1_SHA256, &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 11, 5, 0]),
    (SignatureScheme::ECDSA_NISTP256_SHA256, &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]),
    (SignatureScheme::ECDSA_NISTP384_SHA384, &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3]),
    (SignatureScheme::ED25519, &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70]),
];

/// A certificate could not be signed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("error reading CA cert file {}: expected 1 certificate", .0.display())]
    Certificate(PathBuf),
    #[error("error reading CA key file {}: unsupported private key", .0.display())]
    Key(PathBuf),
    #[error("unrecognized usage values: {0:?}")]
    Usages(Vec<String>),
    #[error("the signer has expired: NotAfter={0}")]
    Expired(Timestamp),
    #[error("failed to sign certificate: {0}")]
    Signature(#[from] rustls::Error),
    #[error("unable to generate a serial number")]
    Random,
    #[error("the validity is out of range: {0}")]
    Validity(#[from] jiff::Error),
}

/// A CA certificate and key.
pub(super) struct CertificateAuthority {
    /// DER of the subject.
    subject: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
    not_after: Timestamp,
    key: std::sync::Arc<dyn SigningKey>,
}

impl CertificateAuthority {
    /// Reads the PEM files.
    pub(super) fn read(files: &SigningKeyPair) -> Result<Self, SignError> {
        let read = |path: &PathBuf| fs::read(path).map_err(|source| SignError::Read { path: path.clone(), source });
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).ok();
        let key = key.and_then(|key| any_supported_type(&key).ok()).ok_or_else(|| SignError::Key(files.key.clone()))?;
        let not_one = || SignError::Certificate(files.certificate.clone());
        let text = read(&files.certificate)?;
        let certificates: Result<Vec<_>, _> = x509_parser::pem::Pem::iter_from_buffer(&text).collect();
        let certificates = certificates.map_err(|_| not_one())?;
        let [pem] = certificates.as_slice() else { return Err(not_one()) };
        let (_, certificate) =
            x509_parser::certificate::X509Certificate::from_der(&pem.contents).map_err(|_| not_one())?;
        let identifier = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
        Ok(Self {
            subject: certificate.subject().as_raw().to_vec(),
            key_identifier: identifier,
            not_after: Timestamp::from_second(certificate.validity().not_after.timestamp())?,
            key,
        })
    }

    /// Signs a certificate and returns it as PEM.
    pub(super) fn sign(
        &self,
        request: &ParsedRequest,
        usages: &[String],
        validity: Duration,
        now: Timestamp,
    ) -> Result<String, SignError> {
        let schemes: Vec<SignatureScheme> = SCHEMES.iter().map(|(scheme, _)| *scheme).collect();
        let signer = self.key.choose_scheme(&schemes).ok_or_else(|| SignError::Key(PathBuf::new()))?;
        let algorithm = SCHEMES.iter().find(|(scheme, _)| *scheme == signer.scheme()).map_or(&[][..], |(_, der)| *der);
        let (not_before, not_after) = self.validity(validity, now)?;
        let mut serial = [0; 16];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut serial).map_err(|_| SignError::Random)?;
        let to_be_signed = sequence(&[
            &der(0xa0, &[&der(2, &[&[2]])]),
            &unsigned_integer(&serial),
            algorithm,
            &self.subject,
            &sequence(&[&time(not_before), &time(not_after)]),
            &request.subject,
            &request.public_key,
            &der(0xa3, &[&self.extensions(request, usages)?]),
        ]);
        let signature = signer.sign(&to_be_signed)?;
        let certificate = sequence(&[&to_be_signed, algorithm, &bit_string(0, &signature)]);
        Ok(to_pem(&certificate))
    }

    /// Returns the bounds of a certificate's validity: at most that of the CA.
    fn validity(&self, validity: Duration, now: Timestamp) -> Result<(Timestamp, Timestamp), SignError> {
        let backdate = if validity < SHORT_VALIDITY { SignedDuration::ZERO } else { BACKDATE };
        let not_after = now.checked_add(SignedDuration::try_from(validity)?)?.checked_sub(backdate)?;
        match now < self.not_after {
            true => Ok((now.checked_sub(BACKDATE)?, not_after.min(self.not_after))),
            false => Err(SignError::Expired(self.not_after)),
        }
    }

    fn extensions(&self, request: &ParsedRequest, usages: &[String]) -> Result<Vec<u8>, SignError> {
        let (key_usage, extended) = encode_usages(usages)?;
        let mut extensions = Vec::new();
        extensions.extend(key_usage.map(|usage| extension(&[0x55, 0x1d, 0x0f], true, &usage)));
        extensions.extend(extended.map(|usages| extension(&[0x55, 0x1d, 0x25], false, &usages)));
        extensions.push(extension(&[0x55, 0x1d, 0x13], true, &sequence(&[])));
        if let Some(identifier) = &self.key_identifier {
            extensions.push(extension(&[0x55, 0x1d, 0x23], false, &sequence(&[&der(0x80, &[identifier])])));
        }
        extensions.extend(alternative_names(request));
        Ok(sequence(&extensions.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }
}

/// Returns the validity of a certificate: the requested one within bounds.
pub(super) fn requested_validity(requested_seconds: Option<i32>, maximum: Duration) -> Duration {
    let Some(seconds) = requested_seconds else { return maximum };
    let requested = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    if requested > maximum { maximum } else { requested.max(MIN_VALIDITY) }
}

/// DER of `keyUsage` and `extKeyUsage`.
type EncodedUsages = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Encodes `keyUsage` and `extKeyUsage`.
fn encode_usages(usages: &[String]) -> Result<EncodedUsages, SignError> {
    let key_usage = |usage: &str| KEY_USAGES.iter().find(|(name, _)| *name == usage).map(|(_, bit)| *bit);
    let is_known = |usage: &str| key_usage(usage).is_some() || EXTENDED_USAGES.iter().any(|(name, _)| *name == usage);
    let unknown: Vec<String> = usages.iter().filter(|usage| !is_known(usage)).cloned().collect();
    if !unknown.is_empty() {
        return Err(SignError::Usages(unknown));
    }
    let bits = usages.iter().filter_map(|usage| key_usage(usage)).fold(0u16, |bits, bit| bits | (0x8000 >> bit));
    let octets = bits.to_be_bytes();
    let used = if octets[1] == 0 { &octets[..1] } else { &octets[..] };
    let unused = used.last().map_or(0, |last| last.trailing_zeros());
    let key_usage = (bits != 0).then(|| bit_string(u8::try_from(unused).unwrap_or_default(), used));
    let mut extended: Vec<Vec<u8>> = Vec::new();
    for (name, oid) in EXTENDED_USAGES {
        let encoded = der(6, &[oid]);
        if usages.iter().any(|usage| usage == name) && !extended.contains(&encoded) {
            extended.push(encoded);
        }
    }
    let list: Vec<&[u8]> = extended.iter().map(Vec::as_slice).collect();
    Ok((key_usage, (!list.is_empty()).then(|| sequence(&list))))
}

/// Encodes the alternative names of the request; critical if the subject is empty.
fn alternative_names(request: &ParsedRequest) -> Option<Vec<u8>> {
    let texts =
        |tag: u8, names: &[String]| -> Vec<Vec<u8>> { names.iter().map(|name| der(tag, &[name.as_bytes()])).collect() };
    let mut names = texts(0x82, &request.dns_names);
    names.extend(texts(0x81, &request.emails));
    names.extend(request.ip_addresses.iter().map(|address| der(0x87, &[address])));
    names.extend(texts(0x86, &request.uris));
    let list: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let is_critical = request.subject == sequence(&[]);
    (!list.is_empty()).then(|| extension(&[0x55, 0x1d, 0x11], is_critical, &sequence(&list)))
}

fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical { der(1, &[&[0xff]]) } else { Vec::new() };
    sequence(&[&der(6, &[oid]), &critical, &der(4, &[value])])
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, parts)
}

fn bit_string(unused: u8, bytes: &[u8]) -> Vec<u8> {
    der(3, &[&[unused], bytes])
}

fn unsigned_integer(bytes: &[u8]) -> Vec<u8> {
    let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let sign: &[u8] = if digits.first().is_none_or(|first| *first >= 0x80) { &[0] } else { &[] };
    der(2, &[sign, digits])
}

/// Encodes a time: UTCTime until 2049, GeneralizedTime from 2050.
fn time(time: Timestamp) -> Vec<u8> {
    let time = time.to_zoned(TimeZone::UTC);
    match time.year() < 2050 {
        true => der(0x17, &[time.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()]),
        false => der(0x18, &[time.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()]),
    }
}

/// Encodes a DER value.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut encoded = vec![tag];
    match content.len() {
        short @ 0..0x80 => encoded.push(short as u8),
        _ => {
            encoded.push(0x80 | length.len() as u8);
            encoded.extend_from_slice(length);
        }
    }
    encoded.extend(content);
    encoded
}

fn to_pem(der: &[u8]) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|start| &text[start..text.len().min(start + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
    use x509_parser::{certificate::X509Certificate, prelude::ASN1Time};

    use super::*;

    /// Writes a CA that is valid for `years` from 2026 on.
    pub(crate) fn write_ca(directory: &Path, years: i32) -> SigningKeyPair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026 + years, 1, 1);
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        let pair = SigningKeyPair { certificate: directory.join("ca.crt"), key: directory.join("ca.key") };
        fs::write(&pair.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }

    /// Returns the PEM of a request for `system:node:n1` with a DNS name and an IP address.
    pub(crate) fn request_pem() -> String {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["n1".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    fn parsed_request() -> ParsedRequest {
        let object = serde_json::json!({"metadata": {}, "spec": {"request": "", "signerName": "s"}});
        let mut object: k8s_openapi::api::certificates::v1::CertificateSigningRequest =
            serde_json::from_value(object).unwrap();
        object.spec.request.0 = request_pem().into_bytes();
        ParsedRequest::from_object(&object).unwrap()
    }

    #[test]
    fn certificate_has_the_names_of_the_request_and_the_usages_of_the_object() {
        let directory = tempfile::tempdir().unwrap();
        let files = write_ca(directory.path(), 10);
        let authority = CertificateAuthority::read(&files).unwrap();
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let usages = ["digital signature", "key encipherment", "server auth", "client auth"].map(str::to_owned);
        let pem = authority.sign(&parsed_request(), &usages, Duration::from_secs(86_400), now).unwrap();
        let pem = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
        let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
        let ca = fs::read(&files.certificate).unwrap();
        let ca = x509_parser::pem::Pem::iter_from_buffer(&ca).next().unwrap().unwrap();
        let (_, ca) = X509Certificate::from_der(&ca.contents).unwrap();
        certificate.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");
        assert_eq!(certificate.issuer(), ca.subject());
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.digital_signature() && usage.value.key_encipherment());
        assert!(!usage.value.key_cert_sign());
        let extended = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.server_auth && extended.client_auth && !extended.code_signing);
        assert!(!certificate.basic_constraints().unwrap().unwrap().value.ca);
        assert_eq!(certificate.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 2);
        let time = |text: &str| ASN1Time::from_timestamp(text.parse::<Timestamp>().unwrap().as_second()).unwrap();
        assert_eq!(certificate.validity().not_before, time("2026-06-01T11:55:00Z"));
        assert_eq!(certificate.validity().not_after, time("2026-06-02T11:55:00Z"));
    }

    #[test]
    fn validity_ends_with_the_authority_and_short_ones_are_not_backdated() {
        let directory = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::read(&write_ca(directory.path(), 1)).unwrap();
        let check = |now: &str, seconds: u64| {
            let bounds = authority.validity(Duration::from_secs(seconds), now.parse().unwrap());
            bounds.map(|(_, not_after)| not_after.to_string())
        };
        assert_eq!(check("2026-06-01T12:00:00Z", 3600).unwrap(), "2026-06-01T13:00:00Z");
        assert_eq!(check("2026-06-01T12:00:00Z", 365 * 86_400).unwrap(), "2027-01-01T00:00:00Z");
        assert!(matches!(check("2027-01-02T12:00:00Z", 3600), Err(SignError::Expired(_))));
    }

    #[test]
    fn requested_validity_is_bounded() {
        let day = Duration::from_secs(86_400);
        assert_eq!(requested_validity(None, day), day);
        assert_eq!(requested_validity(Some(100_000), day), day);
        assert_eq!(requested_validity(Some(60), day), MIN_VALIDITY);
        assert_eq!(requested_validity(Some(7200), day), Duration::from_secs(7200));
    }

    #[test]
    fn unknown_usages_are_refused() {
        let error = encode_usages(&["client auth".to_owned(), "flying".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "unrecognized usage values: [\"flying\"]");
    }
}
