//! The other end of a connection. What its certificate proves is found out once, at the first request that needs it.

use std::{net::SocketAddr, sync::OnceLock};

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{AuthenticationErrors, response::AuthenticationResult};

/// A client's connection.
pub struct Peer {
    /// Where it comes from.
    pub address: Option<SocketAddr>,
    certificate: Option<Presented>,
}

/// A certificate that a client has the key of; nothing else is known of it yet.
pub struct Presented {
    /// With those of intermediate authorities.
    pub chain: Vec<CertificateDer<'static>>,
    /// Until when it counts, in seconds of Unix time.
    ends: i64,
    /// Whom it names, as a client.
    pub client: OnceLock<AuthenticationResult>,
    /// Whether it is a proxy's.
    pub proxy: OnceLock<Result<(), AuthenticationErrors>>,
}

impl Peer {
    /// A connection, and the certificates that were shown on it.
    pub fn new(address: Option<SocketAddr>, chain: Option<&[CertificateDer<'_>]>) -> Self {
        let chain = chain.filter(|chain| !chain.is_empty());
        Self { address, certificate: chain.map(Presented::new) }
    }

    /// What was shown.
    pub fn certificate(&self) -> Option<&Presented> {
        self.certificate.as_ref()
    }
}

impl Presented {
    fn new(chain: &[CertificateDer<'_>]) -> Self {
        let chain: Vec<CertificateDer<'static>> = chain.iter().map(|one| one.clone().into_owned()).collect();
        let parsed = chain.first().and_then(|first| X509Certificate::from_der(first).ok());
        // What cannot be read is not accepted anyway.
        let ends = parsed.map_or(i64::MAX, |(_, certificate)| certificate.validity().not_after.timestamp());
        Self { chain, ends, client: OnceLock::new(), proxy: OnceLock::new() }
    }

    /// A connection may outlive its certificate: it counts for nothing afterwards.
    pub fn has_ended(&self) -> bool {
        apiserver_core::clock::now().as_second() > self.ends
    }
}
