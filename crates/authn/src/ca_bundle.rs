//! CA bundles of client and front-proxy certificates.

use std::{fmt, sync::Arc};

use rustls::{
    DistinguishedName, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

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

    /// The subjects of the CAs, which TLS requests certificates of.
    pub(super) fn subjects(&self) -> Vec<DistinguishedName> {
        self.verifier.root_hint_subjects().to_vec()
    }

    /// Verifies a client's certificate chain, including its validity period.
    pub fn verify_chain(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (first, rest) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(first, rest, UnixTime::now()).map(drop)
    }
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaBundle").finish_non_exhaustive()
    }
}

/// The cryptography of TLS.
pub(super) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
