//! CA bundles of client and front-proxy certificates, and the TLS client authentication of the listener.

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

use super::AuthenticationConfig;

/// An invalid CA bundle.
#[derive(Debug, thiserror::Error)]
pub enum CaBundleError {
    /// The file is not PEM.
    #[error("it is not a list of certificates in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The file has no certificate.
    #[error("it has no certificate")]
    Empty,
    /// A certificate is not usable as a CA.
    #[error("a certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
    /// The verifier cannot be built.
    #[error("certificates cannot be verified with it: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The certificates of one or more CAs.
#[derive(Clone)]
pub struct CaBundle {
    pem: Arc<str>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl CaBundle {
    /// Parses one or more certificates.
    pub fn from_pem(pem: &str) -> Result<Self, CaBundleError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
        if roots.is_empty() {
            return Err(CaBundleError::Empty);
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider()).build()?;
        Ok(Self { pem: pem.into(), verifier })
    }

    /// The certificates in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Verifies a client's certificate chain, including its validity period.
    pub(super) fn verify_chain(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (first, rest) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(first, rest, UnixTime::now()).map(drop)
    }
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaBundle").finish_non_exhaustive()
    }
}

/// Returns the listener's client certificate verifier: it requests certificates of the configured CAs, accepts any and
/// requires none. Authenticators verify the chain later, so that a token can take its place.
pub fn client_verifier(config: &AuthenticationConfig) -> Arc<dyn ClientCertVerifier> {
    let ca_bundles = config.client_ca.iter().chain(&config.proxy_ca);
    let hints = ca_bundles.flat_map(|ca_bundle| ca_bundle.verifier.root_hint_subjects().to_vec()).collect();
    Arc::new(AcceptAnyClientCert { hints, provider: crypto_provider() })
}

fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts any certificate whose key the client holds.
#[derive(Debug)]
struct AcceptAnyClientCert {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AcceptAnyClientCert {
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
