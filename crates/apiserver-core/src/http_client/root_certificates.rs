//! The CAs that outbound connections trust: a given CA bundle, or the system's.

use std::{fs, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
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
pub fn load_root_certificates(pem: Option<&str>) -> Result<RootCertStore, String> {
    let Some(pem) = pem else { return Ok(system_roots()) };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("no certificate in PEM".to_owned());
    }
    Ok(roots)
}

/// Starts a TLS client configuration that trusts `roots`; the client certificate is chosen by the caller.
pub fn client_config_builder(
    roots: RootCertStore,
) -> Result<rustls::ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots))
}
