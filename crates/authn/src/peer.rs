//! The client side of a connection. Its certificate is verified once, by the first request that needs it.

use std::{net::SocketAddr, sync::OnceLock};

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{AuthenticationErrors, response::AuthenticationResult};

/// The client of a connection.
pub struct ConnectionPeer {
    /// Remote address.
    pub address: Option<SocketAddr>,
    certificate: Option<PresentedCertificate>,
}

/// A certificate whose key the client holds; its chain is not yet verified.
pub struct PresentedCertificate {
    /// The certificate and its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    /// Expiry in seconds of Unix time.
    expires_at: i64,
    /// The result as a client certificate.
    pub client: OnceLock<AuthenticationResult>,
    /// The result as a front-proxy certificate.
    pub proxy: OnceLock<Result<(), AuthenticationErrors>>,
}

impl ConnectionPeer {
    /// A connection and the certificates that the client presented.
    pub fn new(address: Option<SocketAddr>, chain: Option<&[CertificateDer<'_>]>) -> Self {
        let chain = chain.filter(|chain| !chain.is_empty());
        Self { address, certificate: chain.map(PresentedCertificate::new) }
    }

    /// The presented certificate.
    pub fn certificate(&self) -> Option<&PresentedCertificate> {
        self.certificate.as_ref()
    }
}

impl PresentedCertificate {
    fn new(chain: &[CertificateDer<'_>]) -> Self {
        let chain: Vec<CertificateDer<'static>> = chain.iter().map(|one| one.clone().into_owned()).collect();
        let parsed = chain.first().and_then(|first| X509Certificate::from_der(first).ok());
        // A malformed certificate is rejected later.
        let expires_at = parsed.map_or(i64::MAX, |(_, certificate)| certificate.validity().not_after.timestamp());
        Self { chain, expires_at, client: OnceLock::new(), proxy: OnceLock::new() }
    }

    /// Whether the certificate has expired; a connection may outlive it.
    pub fn has_expired(&self) -> bool {
        apiserver_core::clock::now().as_second() > self.expires_at
    }
}
