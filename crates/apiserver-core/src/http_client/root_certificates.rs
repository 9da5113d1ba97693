//! The TLS configuration of outbound connections: it trusts a CA bundle, or the system's CAs.

use std::{fs, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{
    ClientConfig, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
};

/// Locations of the system CA bundle in common distributions.
const SYSTEM_CA_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// An unusable CA bundle or client certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// The bundle is not base64.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// The bundle is not text.
    #[error(transparent)]
    Utf8(#[from] std::string::FromUtf8Error),
    /// The bundle is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A certificate or key is not supported.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// The bundle is empty.
    #[error("no certificate in PEM")]
    NoCertificate,
}

/// Returns the system's CAs.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = SYSTEM_CA_BUNDLES.iter().find_map(|file| fs::read(file).ok()) {
        // Unsupported CAs of the system are skipped.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    }
    roots
}

/// Returns the CAs of a PEM bundle; the system's without a bundle.
pub fn load_root_certificates(pem: Option<&str>) -> Result<RootCertStore, TlsConfigError> {
    let Some(pem) = pem else { return Ok(system_roots()) };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err(TlsConfigError::NoCertificate);
    }
    Ok(roots)
}

/// Starts a TLS client configuration that trusts `roots`; the client certificate is chosen by the caller.
pub fn client_config_builder(
    roots: RootCertStore,
) -> Result<rustls::ConfigBuilder<ClientConfig, WantsClientCert>, TlsConfigError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots))
}

/// Returns a TLS configuration that trusts a base64-encoded CA bundle; the system's CAs without a bundle.
pub fn tls_config_for_bundle(bundle: &str) -> Result<ClientConfig, TlsConfigError> {
    let pem = String::from_utf8(BASE64_STANDARD.decode(bundle)?)?;
    let roots = load_root_certificates(Some(pem.as_str()).filter(|pem| !pem.is_empty()))?;
    Ok(client_config_builder(roots)?.with_no_client_auth())
}
