//! Client certificates: the subject's CN is the user, its Os are the groups, and it may carry a uid.

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
    AuthenticationErrors, AuthenticationRequest, AuthenticationResponse, AuthenticationResult, Authority, CREDENTIAL,
    RequestAuthenticator, peer::Presented,
};

/// The attribute of a subject that is the user's uid.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Knows whoever shows a certificate of an authority.
pub struct Certificates {
    authority: Authority,
}

impl Certificates {
    /// Those of this authority.
    pub fn new(authority: &Authority) -> Self {
        Self { authority: authority.clone() }
    }

    fn found(&self, presented: &Presented) -> AuthenticationResult {
        if let Err(error) = self.authority.verify(&presented.chain) {
            let which = presented.chain.first().map(identifier).unwrap_or_default();
            return Err(AuthenticationErrors::one(format!("verifying certificate {which} failed: {error}")));
        }
        presented.chain.first().map_or(Ok(None), user_of)
    }
}

#[async_trait]
impl RequestAuthenticator for Certificates {
    async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some(presented) = shown.peer.and_then(|peer| peer.certificate()) else { return Ok(None) };
        if presented.has_ended() {
            // The reason is found anew: it is not the one of the first request.
            return self.found(presented);
        }
        presented.client.get_or_init(|| self.found(presented)).clone()
    }
}

/// The user that a verified certificate names; nobody, if it has no CN.
fn user_of(certificate: &CertificateDer<'_>) -> AuthenticationResult {
    let unreadable = |_| AuthenticationErrors::one("the certificate cannot be read");
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(unreadable)?;
    let subject = parsed.subject();
    // Of several names the last one counts, as upstream has it.
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("X509SHA256={digest}")])]);
    Ok(Some(AuthenticationResponse::user(User { name: name.to_owned(), groups, uid: uid(subject)?, extra })))
}

fn uid(subject: &X509Name<'_>) -> Result<String, AuthenticationErrors> {
    let texts: Result<Vec<&str>, _> = subject.iter_by_oid(&UID).map(|uid| uid.as_str()).collect();
    let texts = texts.map_err(|_| AuthenticationErrors::one("unable to parse UID into a string"))?;
    match texts.as_slice() {
        [] => Ok(String::new()),
        [""] => Err(AuthenticationErrors::one("UID cannot be an empty string")),
        [one] => Ok((*one).to_owned()),
        many => Err(AuthenticationErrors::one(format!("expected 1 UID, but found multiple: [{}]", many.join(" ")))),
    }
}

/// Which certificate it is, for the log.
fn identifier(certificate: &CertificateDer<'_>) -> String {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => format!("SN={}, subject {}", parsed.raw_serial_as_string(), parsed.subject()),
        Err(_) => "that cannot be read".to_owned(),
    }
}
