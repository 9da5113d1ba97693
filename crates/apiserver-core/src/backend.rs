//! Connections to whoever answers: a kubelet, a pod or a node's port, by HTTP/1.1, with TLS or without.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        ResolvesClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::CertifiedKey,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::Body;

/// How long a connection may take, TLS included; upstream waits as long.
const CONNECT: Duration = Duration::from_secs(30);

/// Where an answer comes from.
#[derive(Clone)]
pub struct Backend {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How to speak TLS, if at all.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Why there is no connection, in Go's words.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is there.
    #[error("dial tcp {address}: {why}")]
    Dial {
        /// Where.
        address: String,
        /// What the kernel says.
        why: String,
    },
    /// It does not speak TLS, or shows a certificate that is not accepted.
    #[error("tls: {0}")]
    Tls(String),
    /// It does not speak HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

/// Sends one request.
pub type Sender = http1::SendRequest<Body>;

impl Backend {
    /// `host:port`, as URLs have it.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// Sends a request, whose URI is a path, and waits for the head of the answer.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, Error> {
        let connected = tokio::time::timeout(CONNECT, self.connect()).await;
        let late = || Error::Dial { address: self.authority(), why: "i/o timeout".into() };
        let mut sender = connected.map_err(|_| late())??;
        Ok(sender.send_request(request).await?)
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Result<Sender, Error> {
        let stream = dial(&self.host, self.port).await?;
        match &self.tls {
            Some(tls) => shake(secure(tls, &self.host, stream).await?).await,
            None => shake(stream).await,
        }
    }
}

/// `host:port`, as URLs have it.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A connection to a name or an address.
pub async fn dial(host: &str, port: u16) -> Result<TcpStream, Error> {
    let failed = |error: std::io::Error| Error::Dial { address: authority(host, port), why: told(&error) };
    let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// TLS on a connection, with somebody of that name.
pub async fn secure(tls: &Arc<ClientConfig>, name: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, Error> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| Error::Tls(error.to_string()))?;
    let connected = TlsConnector::from(tls.clone()).connect(name, stream).await;
    connected.map_err(|error| Error::Tls(distrust(&error)))
}

/// Why the other side is not trusted, in Go's words where it has some.
fn distrust(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(why)) => why,
        _ => return error.to_string(),
    };
    let words = match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "certificate signed by unknown authority",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid"
        }
        _ => return format!("failed to verify certificate: {why}"),
    };
    format!("failed to verify certificate: x509: {words}")
}

async fn shake(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Sender, Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection on behalf of a client ended");
        }
    });
    Ok(sender)
}

fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".into(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        std::io::ErrorKind::TimedOut => "i/o timeout".into(),
        _ => error.to_string(),
    }
}

/// The same, accepting any certificate: what runs in pods has certificates of its own making, and its address is the
/// cluster's to give.
pub fn unverified(tls: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = tls.clone();
    let provider = config.crypto_provider().clone();
    config.dangerous().set_certificate_verifier(Arc::new(Anybody(provider)));
    Arc::new(config)
}

/// TLS with whoever is there, without showing who we are.
pub fn for_anybody(tls: &ClientConfig) -> ClientConfig {
    let mut config = (*unverified(tls)).clone();
    config.client_auth_cert_resolver = Arc::new(Nobody);
    config
}

/// Shows no certificate.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
