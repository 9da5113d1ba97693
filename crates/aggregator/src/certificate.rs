//! The front-proxy client certificate, by which aggregated servers trust the `X-Remote-*` headers.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};

/// A certificate and its key.
#[derive(Clone)]
pub struct ClientCertificate(Arc<SingleCertAndKey>);

/// An unusable client certificate.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(String);

impl ClientCertificate {
    /// Parses the certificate chain and key from PEM.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, CertificateError> {
        let wrong = |error: &dyn fmt::Display| CertificateError(error.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let chain = chain.map_err(|error| wrong(&error))?;
        if chain.is_empty() {
            return Err(wrong(&"the PEM text contains no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong(&error))?;
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| wrong(&error))?;
        Ok(Self(Arc::new(SingleCertAndKey::from(pair))))
    }

    /// Sets it as the client certificate of a TLS configuration.
    pub fn install_in(&self, tls: &mut ClientConfig) {
        tls.client_auth_cert_resolver = self.0.clone();
    }
}

impl fmt::Debug for ClientCertificate {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate")
    }
}
