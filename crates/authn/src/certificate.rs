//! Client certificates: the common name is the user, the organizations are the groups, and a UID is optional.

use std::collections::BTreeMap;

use apiserver_core::User;
use async_trait::async_trait;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::{
    oid_registry::{Oid, asn1_rs::oid},
    prelude::{FromDer, X509Certificate},
    x509::X509Name,
};

use super::{
    AuthenticationErrors, AuthenticationRequest, AuthenticationResponse, AuthenticationResult, CREDENTIAL_ID, CaBundle,
    RequestAuthenticator, peer::PresentedCertificate,
};

/// The subject attribute of the UID.
const UID_ATTRIBUTE: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Authenticates client certificates of a CA.
pub struct CertificateAuthenticator {
    ca_bundle: CaBundle,
}

impl CertificateAuthenticator {
    /// Accepts certificates of `ca_bundle`.
    pub fn new(ca_bundle: &CaBundle) -> Self {
        Self { ca_bundle: ca_bundle.clone() }
    }

    fn authenticate_chain(&self, presented: &PresentedCertificate) -> AuthenticationResult {
        if let Err(error) = self.ca_bundle.verify_chain(&presented.chain) {
            let certificate = presented.chain.first().map(describe_certificate).unwrap_or_default();
            return Err(AuthenticationErrors::single(format!("verifying certificate {certificate} failed: {error}")));
        }
        presented.chain.first().map_or(Ok(None), user_from_certificate)
    }
}

#[async_trait]
impl RequestAuthenticator for CertificateAuthenticator {
    async fn authenticate(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(presented) = request.peer.and_then(|peer| peer.certificate()) else { return Ok(None) };
        if presented.has_expired() {
            // The error differs from the cached result.
            return self.authenticate_chain(presented);
        }
        presented.client.get_or_init(|| self.authenticate_chain(presented)).clone()
    }
}

/// Returns the user of a verified certificate; `None` without a common name.
fn user_from_certificate(certificate: &CertificateDer<'_>) -> AuthenticationResult {
    let malformed = |_| AuthenticationErrors::single("the certificate is malformed");
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(malformed)?;
    let subject = parsed.subject();
    // The last common name counts, as in Go.
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")])]);
    Ok(Some(AuthenticationResponse::for_user(User {
        name: name.to_owned(),
        groups,
        uid: uid_from_subject(subject)?,
        extra,
    })))
}

fn uid_from_subject(subject: &X509Name<'_>) -> Result<String, AuthenticationErrors> {
    let texts: Result<Vec<&str>, _> = subject.iter_by_oid(&UID_ATTRIBUTE).map(|uid| uid.as_str()).collect();
    let texts = texts.map_err(|_| AuthenticationErrors::single("unable to parse UID into a string"))?;
    match texts.as_slice() {
        [] => Ok(String::new()),
        [""] => Err(AuthenticationErrors::single("UID cannot be an empty string")),
        [one] => Ok((*one).to_owned()),
        many => Err(AuthenticationErrors::single(format!("expected 1 UID, but found multiple: [{}]", many.join(" ")))),
    }
}

/// Describes a certificate for the log.
fn describe_certificate(certificate: &CertificateDer<'_>) -> String {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => format!("SN={}, subject {}", parsed.raw_serial_as_string(), parsed.subject()),
        Err(_) => "with malformed DER".to_owned(),
    }
}
