//! Whom the server trusts when it calls others: an authority of the caller's choice, or those of this machine.

use std::{fs, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Where distributions keep the authorities that they trust.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities that this machine trusts.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = SYSTEM.iter().find_map(|file| fs::read(file).ok()) {
        // Some of a machine's authorities are of kinds that are not supported: the others count.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    }
    roots
}

/// The authorities of a PEM text, or this machine's if there is none.
pub fn trusting(pem: Option<&str>) -> Result<RootCertStore, String> {
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

/// TLS with servers of these authorities; whether and which certificate is shown is still to be said.
pub fn client_tls(roots: RootCertStore) -> Result<rustls::ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots))
}
