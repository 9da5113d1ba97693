//! TLS client authentication of the listener.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::{AuthenticationConfig, ca_bundle::crypto_provider};

/// Returns the listener's client certificate verifier: it requests certificates of the configured CAs, accepts any and
/// requires none. Authenticators verify the chain later, so that a token can take its place.
pub fn client_verifier(config: &AuthenticationConfig) -> Arc<dyn ClientCertVerifier> {
    let ca_bundles = config.client_ca.iter().chain(&config.proxy_ca);
    let hints = ca_bundles.flat_map(|ca_bundle| ca_bundle.subjects()).collect();
    Arc::new(AcceptAnyClientCert { hints, provider: crypto_provider() })
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
