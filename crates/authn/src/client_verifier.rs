//! TLS client authentication of the listener.

use std::sync::{Arc, OnceLock};

use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::{AuthenticationConfig, ca_bundle::crypto_provider};

/// Returns the listener's client certificate verifier.
pub fn client_verifier(config: &AuthenticationConfig) -> Arc<ClientCertificateVerifier> {
    Arc::new(ClientCertificateVerifier { hints: CaHints::new(config), provider: crypto_provider() })
}

/// Requests certificates of the configured CAs, accepts any whose key the client holds, and requires none.
/// Authenticators verify the chain later, so that a token can take its place.
#[derive(Debug)]
pub struct ClientCertificateVerifier {
    hints: CaHints,
    provider: Arc<CryptoProvider>,
}

impl ClientCertificateVerifier {
    /// Requests certificates of the CAs of another configuration from now on.
    pub fn update_hints(&self, config: &AuthenticationConfig) {
        let mut hints = Box::new(CaHints::new(config));
        // Another update may be faster.
        while let Err(again) = self.hints.latest().newer.set(hints) {
            hints = again;
        }
    }
}

/// Subjects of CAs, and those that replaced them. rustls borrows them, so all live as long as the verifier.
#[derive(Debug)]
struct CaHints {
    subjects: Vec<DistinguishedName>,
    newer: OnceLock<Box<CaHints>>,
}

impl CaHints {
    fn new(config: &AuthenticationConfig) -> Self {
        let ca_bundles = config.client_ca.iter().chain(&config.proxy_ca);
        let subjects = ca_bundles.flat_map(|ca_bundle| ca_bundle.subjects()).collect();
        Self { subjects, newer: OnceLock::new() }
    }

    fn latest(&self) -> &Self {
        let mut latest = self;
        while let Some(newer) = latest.newer.get() {
            latest = newer;
        }
        latest
    }
}

impl ClientCertVerifier for ClientCertificateVerifier {
    fn offer_client_auth(&self) -> bool {
        !self.root_hint_subjects().is_empty()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints.latest().subjects
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
