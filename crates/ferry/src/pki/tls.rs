//! TLS configurations from the cluster's certificates: for the API server, for the kubelet, and between the two.

use std::{path::Path, sync::Arc};

use client::certificates::ReloadingCertificate;
use rustls::{
    CipherSuite, ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::leaf;

/// The certificates that are in use, each following its files.
#[derive(Clone, Debug)]
pub struct ClusterCertificates {
    api_server: Arc<ReloadingCertificate>,
    kubelet_client: Arc<ReloadingCertificate>,
    kubelet: Arc<ReloadingCertificate>,
    /// The front-proxy client certificate.
    pub front_proxy: Arc<ReloadingCertificate>,
    metrics_server: Arc<ReloadingCertificate>,
}

impl ClusterCertificates {
    /// Loads what is in the directory of [`prepare_pki`](super::prepare_pki).
    pub fn load(directory: &Path) -> anyhow::Result<Self> {
        let load = |name: &str| {
            let file = |extension: &str| directory.join(format!("{name}.{extension}"));
            ReloadingCertificate::load(&file("crt"), &file("key"), crypto_provider())
        };
        let [api_server, kubelet_client, kubelet, _, front_proxy, metrics_server] = leaf::NAMES;
        Ok(Self {
            api_server: load(api_server)?,
            kubelet_client: load(kubelet_client)?,
            kubelet: load(kubelet)?,
            front_proxy: load(front_proxy)?,
            metrics_server: load(metrics_server)?,
        })
    }

    /// Reads all files again: new connections use what they have now. Blocks.
    pub fn reload(&self) -> anyhow::Result<()> {
        let servers = [&self.api_server, &self.kubelet, &self.metrics_server];
        for certificate in servers.into_iter().chain([&self.kubelet_client, &self.front_proxy]) {
            certificate.reload()?;
        }
        Ok(())
    }

    /// The API server's TLS configuration; `verifier` handles client certificates.
    pub fn api_server_tls(&self, verifier: Arc<dyn ClientCertVerifier>) -> anyhow::Result<ServerConfig> {
        let mut config = server_tls(verifier, &self.api_server)?;
        config.ignore_client_order = true;
        Ok(config)
    }

    /// Serves clients that show a certificate of the CA, or none.
    pub fn kubelet_tls(&self, ca: &str) -> anyhow::Result<ServerConfig> {
        kubelet_server_tls(ca, &self.kubelet)
    }

    /// The metrics server's TLS configuration: clients show a certificate of the front-proxy CA.
    pub fn metrics_server_tls(&self, front_proxy_ca: &str) -> anyhow::Result<ServerConfig> {
        let verifier = WebPkiClientVerifier::builder_with_provider(root_store(front_proxy_ca)?, crypto_provider());
        server_tls(verifier.build()?, &self.metrics_server)
    }

    /// The API server's TLS configuration for kubelets.
    pub fn kubelet_client_tls(&self, ca: &str) -> anyhow::Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(root_store(ca)?);
        Ok(builder.with_client_cert_resolver(self.kubelet_client.clone()))
    }
}

/// The TLS configuration of a kubelet's server: clients show a certificate of the CA, or none.
pub fn kubelet_server_tls(ca: &str, certificate: &Arc<ReloadingCertificate>) -> anyhow::Result<ServerConfig> {
    let verifier = WebPkiClientVerifier::builder_with_provider(root_store(ca)?, crypto_provider());
    server_tls(verifier.allow_unauthenticated().build()?, certificate)
}

fn server_tls(
    verifier: Arc<dyn ClientCertVerifier>,
    certificate: &Arc<ReloadingCertificate>,
) -> anyhow::Result<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(certificate.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
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
