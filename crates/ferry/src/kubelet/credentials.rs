//! The kubelet's certificates: the client certificate from the kubeconfig or a bootstrap kubeconfig, the serving
//! certificate from files, the API server, or made here; both renewed while it runs.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow};
use base64::Engine;
use client::certificates::ReloadingCertificate;
use kube::{Client, config::Kubeconfig};
use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::CertificateDer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::options::KubeletOptions;
use crate::{
    atomic,
    join::{NodeCertificate, request_certificate},
    pki::{self, crypto_provider},
    self_signed::SelfSignedCertificate,
};

/// The `User-Agent` of requests.
const COMPONENT: &str = "kubelet";
/// The client certificate and its key in one file, as upstream names it.
const CLIENT_PEM: &str = "kubelet-client-current.pem";
/// The serving certificate and its key in one file.
const SERVER_PEM: &str = "kubelet-server-current.pem";
/// A certificate is renewed when less than this part of a year is left, or a fifth of its life.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Delay after a request that was not signed.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The kubelet's connection to the API server.
pub struct ApiAccess {
    /// The client.
    pub client: Client,
    /// The server's URL.
    pub server: http::Uri,
    /// The client certificate, if it is one that can be renewed.
    certificate: Option<Arc<ReloadingCertificate>>,
}

impl ApiAccess {
    /// Reads the kubeconfig; makes it first with the bootstrap kubeconfig if it does not exist.
    pub async fn obtain(options: &KubeletOptions) -> anyhow::Result<Self> {
        if !options.kubeconfig.exists()
            && let Some(bootstrap) = &options.bootstrap_kubeconfig
        {
            bootstrap_client(options, bootstrap).await?;
        }
        let file = options.kubeconfig.display();
        let kubeconfig = Kubeconfig::read_from(&options.kubeconfig).with_context(|| format!("--kubeconfig {file}"))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let server = config.cluster_url.clone();
        let auth = &config.auth_info;
        let files = auth.client_certificate.as_ref().zip(auth.client_key.as_ref());
        let roots = config.root_cert.clone().filter(|_| !config.accept_invalid_certs);
        if let (Some((certificate, key)), Some(roots)) = (files, roots) {
            let resolve = |path: &str| options.kubeconfig.parent().unwrap_or(Path::new("/")).join(path);
            let certificate = ReloadingCertificate::load(&resolve(certificate), &resolve(key), crypto_provider())?;
            let mut store = RootCertStore::empty();
            for root in roots {
                store.add(CertificateDer::from(root))?;
            }
            let builder =
                ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
            let tls = builder.with_root_certificates(store).with_client_cert_resolver(certificate.clone());
            let client = client::transport::tls_client(&server.to_string(), tls, COMPONENT)?;
            return Ok(Self { client, server, certificate: Some(certificate) });
        }
        let clients = client::transport::component_clients(Some(&options.kubeconfig), None, COMPONENT).await?;
        Ok(Self { client: clients.authenticated, server, certificate: None })
    }
}

/// Asks for a client certificate and writes the kubeconfig that uses it.
async fn bootstrap_client(options: &KubeletOptions, bootstrap: &Path) -> anyhow::Result<()> {
    let context = || format!("--bootstrap-kubeconfig {}", bootstrap.display());
    let kubeconfig = Kubeconfig::read_from(bootstrap).with_context(context)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.with_context(context)?;
    let roots = config.root_cert.clone().unwrap_or_default();
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config)?;
    tracing::info!(server, "kubelet: asking for a client certificate");
    let pair = request_certificate(&client, &options.node_name, NodeCertificate::Client).await?;
    let pem = write_pem(&options.cert_dir, CLIENT_PEM, &pair)?;
    let ca: String = roots.iter().map(|der| encode_certificate(der)).collect();
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default-context",
        "clusters": [{ "name": "default-cluster", "cluster": { "server": server,
            "certificate-authority-data": base64_text(ca.as_bytes()) } }],
        "users": [{ "name": "default-auth", "user": { "client-certificate": pem, "client-key": pem } }],
        "contexts": [{ "name": "default-context", "context": { "cluster": "default-cluster", "user": "default-auth" } }],
    });
    let text = format!("{document:#}\n");
    atomic::write_file(&options.kubeconfig, text.as_bytes(), atomic::PRIVATE)
        .with_context(|| options.kubeconfig.display().to_string())
}

/// Encodes a certificate as PEM.
fn encode_certificate(der: &[u8]) -> String {
    let text = base64_text(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n");
    format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
}

fn base64_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Writes certificate and key to one file; returns its path.
fn write_pem(dir: &Path, name: &str, pair: &pki::CertificatePair) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("--cert-dir {}", dir.display()))?;
    let file = dir.join(name);
    atomic::write_file(&file, format!("{}{}", pair.certificate, pair.key).as_bytes(), atomic::PRIVATE)?;
    Ok(file)
}

/// The certificate of the kubelet's server.
pub struct ServingCertificate {
    certificate: Arc<ReloadingCertificate>,
    /// Whether the API server signs it.
    is_requested: bool,
}

impl ServingCertificate {
    /// Loads the files of the options, or makes a self-signed certificate, until the API server has signed one.
    pub fn load(options: &KubeletOptions, node_ip: IpAddr) -> anyhow::Result<Self> {
        if let Some((certificate, key)) = &options.serving_pair {
            let certificate = ReloadingCertificate::load(certificate, key, crypto_provider());
            return Ok(Self {
                certificate: certificate.context("tlsCertFile and tlsPrivateKeyFile")?,
                is_requested: false,
            });
        }
        let requested = options.cert_dir.join(SERVER_PEM);
        let is_requested = options.server_tls_bootstrap;
        if is_requested && requested.exists() {
            let certificate = ReloadingCertificate::load(&requested, &requested, crypto_provider())?;
            return Ok(Self { certificate, is_requested });
        }
        let names: &[&str] = &[];
        let subject =
            SelfSignedCertificate { pair_name: "kubelet", host: &options.node_name, names, ips: vec![node_ip] };
        subject.load_or_create(Some(&options.cert_dir))?;
        let file = |suffix: &str| options.cert_dir.join(format!("kubelet.{suffix}"));
        let (certificate, key) = (file("crt"), file("key"));
        if is_requested {
            // One file that the signed certificate replaces.
            let read = |file: &Path| std::fs::read_to_string(file).with_context(|| file.display().to_string());
            let pair = pki::CertificatePair { certificate: read(&certificate)?, key: read(&key)? };
            let both = write_pem(&options.cert_dir, SERVER_PEM, &pair)?;
            return Ok(Self {
                certificate: ReloadingCertificate::load(&both, &both, crypto_provider())?,
                is_requested,
            });
        }
        Ok(Self { certificate: ReloadingCertificate::load(&certificate, &key, crypto_provider())?, is_requested })
    }

    /// Returns the TLS configuration of the server; clients show a certificate of the CA, or none.
    pub fn server_tls(&self, client_ca: Option<&Path>) -> anyhow::Result<ServerConfig> {
        if let Some(file) = client_ca {
            let ca = std::fs::read_to_string(file).with_context(|| format!("--client-ca-file {}", file.display()))?;
            return pki::kubelet_server_tls(&ca, &self.certificate);
        }
        let builder = ServerConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Renews the certificates until `shutdown`.
pub async fn run_renewal(
    options: Arc<KubeletOptions>,
    access: ApiAccess,
    serving: ServingCertificate,
    node_ip: IpAddr,
    shutdown: CancellationToken,
) {
    let work = async {
        loop {
            let pause = match renew(&options, &access, &serving, node_ip).await {
                Ok(()) => CHECK_INTERVAL,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "kubelet: certificate not renewed, retrying");
                    RETRY_DELAY
                }
            };
            tokio::time::sleep(pause).await;
        }
    };
    shutdown.run_until_cancelled(work).await;
}

async fn renew(
    options: &KubeletOptions,
    access: &ApiAccess,
    serving: &ServingCertificate,
    node_ip: IpAddr,
) -> anyhow::Result<()> {
    let client_file = options.cert_dir.join(CLIENT_PEM);
    if let Some(current) = access.certificate.as_ref().filter(|_| options.rotate_certificates)
        && client_file.exists()
        && is_ending(&client_file)?
    {
        let pair = request_certificate(&access.client, &options.node_name, NodeCertificate::Client).await?;
        write_pem(&options.cert_dir, CLIENT_PEM, &pair)?;
        current.reload().map_err(|error| anyhow!(error))?;
        tracing::info!("kubelet: client certificate renewed");
    }
    if serving.is_requested && is_ending(&options.cert_dir.join(SERVER_PEM))? {
        let which = NodeCertificate::Serving(node_ip);
        let pair = request_certificate(&access.client, &options.node_name, which).await?;
        write_pem(&options.cert_dir, SERVER_PEM, &pair)?;
        serving.certificate.reload().map_err(|error| anyhow!(error))?;
        tracing::info!("kubelet: serving certificate renewed");
    }
    Ok(())
}

/// Whether a certificate ends soon, or is self-signed.
fn is_ending(file: &Path) -> anyhow::Result<bool> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(pki::is_issued_by(&text, &text)? || pki::expiry(&text)? < SystemTime::now() + RENEW_BEFORE)
}
