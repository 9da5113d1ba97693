//! TLS settings of a client, and certificate errors in Go's words.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use crate::{
    errors::{CommandError, CommandResult},
    kubeconfig::ClientSettings,
};

/// The configurations of TLS for HTTP/2 and HTTP/1.1.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Offers HTTP/2 and HTTP/1.1.
    pub any: Arc<ClientConfig>,
    /// Offers HTTP/1.1 only, for upgrades.
    pub http1: Arc<ClientConfig>,
    /// A client key that does not fit its certificate: connections fail with this.
    pub key_error: Option<String>,
}

impl TlsSettings {
    /// The settings of a client.
    pub fn new(settings: &ClientSettings) -> CommandResult<Self> {
        if settings.insecure && settings.authority.is_some() {
            crate::bail!("specifying a root certificates file with the insecure flag is not allowed");
        }
        let roots = if settings.insecure { RootCertStore::empty() } else { root_store(settings)? };
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut key_error = None;
        let mut config = match client_identity(settings)? {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => match builder.clone().with_client_auth_cert(chain, key) {
                Ok(config) => config,
                Err(_) => {
                    let text = "tls: private key does not match public key".to_owned();
                    let line = format!("\"Loading client cert failed\" err=\"{text}\" key=\"key\"");
                    super::log_line('E', "cert_rotation.go:92", &line);
                    key_error = Some(text);
                    builder.with_no_client_auth()
                }
            },
        };
        if settings.insecure {
            config = (*transport::without_verification(&config)).clone();
        }
        let mut http1 = config.clone();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsSettings { any: Arc::new(config), http1: Arc::new(http1), key_error })
    }
}

fn root_store(settings: &ClientSettings) -> CommandResult<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (pem, named) = match &settings.authority {
        Some(authority) => (authority.clone(), true),
        None => (system_roots(), false),
    };
    let malformed = || {
        CommandError::new("unable to load root certificates: failed to parse certificate: x509: malformed certificate")
    };
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        match certificate.ok().map(|certificate| roots.add(certificate)) {
            Some(Ok(())) => {}
            _ if named => return Err(malformed()),
            _ => {}
        }
    }
    if named && roots.is_empty() {
        let message = "unable to load root certificates: unable to parse bytes as PEM block";
        return Err(CommandError::new(message));
    }
    Ok(roots)
}

fn system_roots() -> Vec<u8> {
    let files = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    files.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default()
}

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_identity(settings: &ClientSettings) -> CommandResult<Option<ClientIdentity>> {
    let (Some(certificate), Some(key)) = (&settings.user.certificate, &settings.user.key) else { return Ok(None) };
    let wrong = |what: &str| CommandError::new(format!("tls: failed to find any PEM data in {what} input"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).filter_map(Result::ok).collect();
    if chain.is_empty() {
        return Err(wrong("certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| wrong("key"))?;
    Ok(Some((chain, key)))
}

/// The text of a failed handshake.
pub fn handshake_error(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(error)) => {
            format!("tls: failed to verify certificate: x509: {}", certificate_error(error))
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(rustls::Error::InvalidMessage(_)) => "tls: first record does not look like a TLS handshake".to_owned(),
        Some(other) => format!("tls: {other}"),
        None => crate::files::os_error(error),
    }
}

fn certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid: ".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid: ".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let wanted = match expected {
                ServerName::IpAddress(address) => std::net::IpAddr::from(*address).to_string(),
                other => other.to_str().into_owned(),
            };
            let is_ip = matches!(expected, ServerName::IpAddress(_));
            let names: Vec<&str> = presented.iter().filter_map(|name| presented_name(name, is_ip)).collect();
            if names.is_empty() {
                return format!("certificate is not valid for any names, but wanted to match {wanted}");
            }
            format!("certificate is valid for {}, not {wanted}", names.join(", "))
        }
        // webpki reports a CA certificate that is used by a server this way.
        CertificateError::Other(_) => "certificate signed by unknown authority".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The name in `DnsName("a")` or `IpAddress(127.0.0.1)`.
fn presented_name(text: &str, is_ip: bool) -> Option<&str> {
    let prefix = if is_ip { "IpAddress(" } else { "DnsName(" };
    Some(text.strip_prefix(prefix)?.trim_end_matches(')').trim_matches('"'))
}
