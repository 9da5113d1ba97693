//! Who signs certificates of clients or of proxies, and how TLS asks clients for theirs.

use std::{fmt, sync::Arc};

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::Authentication;

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It is not PEM, or not of certificates.
    #[error("it is not a list of certificates in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// It has no certificate.
    #[error("it has no certificate")]
    Empty,
    /// A certificate is none of an authority.
    #[error("a certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
    /// Nothing can be verified with it.
    #[error("certificates cannot be verified with it: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Some certificates of authorities.
#[derive(Clone)]
pub struct Authority {
    pem: Arc<str>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    /// Reads one or more certificates.
    pub fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
        if roots.is_empty() {
            return Err(AuthorityError::Empty);
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        Ok(Self { pem: pem.into(), verifier })
    }

    /// The certificates as they were read.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Whether a client's certificate is of this authority, and counts now.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (first, rest) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(first, rest, UnixTime::now()).map(drop)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// How TLS asks clients for certificates: those of the settings' authorities are wanted, any is taken, none is needed. Whether
/// one is accepted is decided later, where a token may still count in its place.
pub fn client_verifier(settings: &Authentication) -> Arc<dyn ClientCertVerifier> {
    let authorities = settings.client_ca.iter().chain(&settings.proxy_ca);
    let hints = authorities.flat_map(|authority| authority.verifier.root_hint_subjects().to_vec()).collect();
    Arc::new(Anybody { hints, provider: provider() })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Takes any certificate whose key the client has.
#[derive(Debug)]
struct Anybody {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Anybody {
    fn offer_client_auth(&self) -> bool {
        !self.hints.is_empty()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
