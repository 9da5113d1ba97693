//! TLS configurations from the cluster's certificates: for the API server, for the kubelet, and between the two.

use std::sync::Arc;

use rustls::{
    CipherSuite, ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{CertificatePair, ClusterPki};

/// The API server's TLS configuration; `verifier` handles client certificates.
pub fn api_server_tls(pki: &ClusterPki, verifier: Arc<dyn ClientCertVerifier>) -> anyhow::Result<ServerConfig> {
    let (chain, key) = parse_pair(&pki.api_server)?;
    let builder = ServerConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    Ok(config)
}

/// Serves clients that show a certificate of the CA, or none.
pub fn kubelet_tls(pki: &ClusterPki) -> anyhow::Result<ServerConfig> {
    let verifier = WebPkiClientVerifier::builder_with_provider(root_store(&pki.ca)?, crypto_provider());
    let verifier = verifier.allow_unauthenticated().build()?;
    let (chain, key) = parse_pair(&pki.kubelet)?;
    let builder = ServerConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The API server's TLS configuration for kubelets.
pub fn kubelet_client_tls(pki: &ClusterPki) -> anyhow::Result<ClientConfig> {
    let (chain, key) = parse_pair(&pki.kubelet_client)?;
    let builder = ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(root_store(&pki.ca)?).with_client_auth_cert(chain, key)?)
}

/// The usual cryptography, with the cheaper of two good ciphers first, as upstream has it.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn root_store(ca: &str) -> anyhow::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    Ok(Arc::new(roots))
}

fn parse_pair(pair: &CertificatePair) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes())?;
    Ok((vec![certificate], PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?))
}
