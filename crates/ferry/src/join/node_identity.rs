//! The certificates of a joined node: obtained with the bootstrap token, kept in `pki/`, renewed while it runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow};
use client::certificates::ReloadingCertificate;
use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, Config, config::AuthInfo};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_util::sync::CancellationToken;

use super::{
    certificate_request::{NodeCertificate, request_certificate},
    discovery,
};
use crate::{
    atomic,
    instance::ClusterInstance,
    join_target::JoinCredentials,
    options::UpOptions,
    pki::{self, CertificatePair, crypto_provider},
    self_signed::SelfSignedCertificate,
    user_error::user_error,
};

/// Names of the pairs in `pki/`.
const CLIENT: &str = "node";
const SERVING: &str = "kubelet";
/// A certificate that ends within this time is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const RENEWAL_PERIOD: Duration = Duration::from_secs(60);
/// Pause after a request that was not signed.
const RETRY: Duration = Duration::from_secs(5);

/// The certificates of this node.
#[derive(Clone)]
pub struct NodeIdentity {
    directory: PathBuf,
    server: String,
    ca: String,
    client: Arc<ReloadingCertificate>,
    serving: Arc<ReloadingCertificate>,
}

impl NodeIdentity {
    /// Loads the certificates of an earlier start, or obtains them with the bootstrap token.
    pub async fn obtain(
        options: &UpOptions,
        server: &str,
        credentials: Option<&JoinCredentials>,
    ) -> anyhow::Result<Self> {
        let directory = options.instance.pki();
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let ca_file = directory.join("ca.crt");
        let ca = match (atomic::read_file(&ca_file)?, credentials) {
            (Some(ca), _) => ca,
            (None, Some(credentials)) => {
                let ca = discovery::discover_ca(server, &credentials.token, &credentials.ca_hash).await?;
                atomic::write_file(&ca_file, ca.as_bytes(), atomic::PUBLIC)?;
                ca
            }
            (None, None) => {
                return Err(user_error(
                    "this node has not joined a cluster",
                    "Name the cluster: `ferry join https://HOST:6443 --token … --ca-cert-hash …`.",
                ));
            }
        };
        if !pair_exists(&directory, CLIENT) {
            let credentials = credentials.context("the node has no certificate and no token to ask for one")?;
            let client = token_client(server, &ca, &credentials.token.reveal())?;
            let pair = request_certificate(&client, &options.node_name, NodeCertificate::Client).await?;
            write_pair(&directory, CLIENT, &pair)?;
        }
        if !pair_exists(&directory, SERVING) {
            let host = &options.node_name;
            let ips = vec![options.node_ip];
            SelfSignedCertificate { pair_name: SERVING, host, names: &[], ips }.load_or_create(Some(&directory))?;
        }
        Self::load(directory, server, ca)
    }

    fn load(directory: PathBuf, server: &str, ca: String) -> anyhow::Result<Self> {
        let load = |name: &str| {
            let file = |extension: &str| directory.join(format!("{name}.{extension}"));
            ReloadingCertificate::load(&file("crt"), &file("key"), crypto_provider())
        };
        Ok(Self { client: load(CLIENT)?, serving: load(SERVING)?, server: server.to_owned(), ca, directory })
    }

    /// A client of the API server for a component of this node. New connections show the current certificate.
    pub fn client(&self, component: &'static str) -> anyhow::Result<Client> {
        let builder = ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(root_store(&self.ca)?);
        let tls = builder.with_client_cert_resolver(self.client.clone());
        Ok(client::transport::tls_client(&self.server, tls, component)?)
    }

    /// The TLS configuration of the kubelet's server.
    pub fn kubelet_tls(&self) -> anyhow::Result<ServerConfig> {
        pki::kubelet_server_tls(&self.ca, &self.serving)
    }

    /// Obtains the serving certificate and renews both until `shutdown`.
    pub async fn run_renewal(self, options: UpOptions, shutdown: CancellationToken) {
        let work = async {
            loop {
                let pause = match self.renew(&options).await {
                    Ok(()) => RENEWAL_PERIOD,
                    Err(error) => {
                        tracing::warn!(error = format!("{error:#}"), "certificates: renewal failed, retrying");
                        RETRY
                    }
                };
                tokio::time::sleep(pause).await;
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    async fn renew(&self, options: &UpOptions) -> anyhow::Result<()> {
        let serving = NodeCertificate::Serving(options.node_ip);
        for (name, which, current) in
            [(CLIENT, NodeCertificate::Client, &self.client), (SERVING, serving, &self.serving)]
        {
            if self.is_current(name)? {
                continue;
            }
            let pair = request_certificate(&self.client("kubelet")?, &options.node_name, which).await?;
            write_pair(&self.directory, name, &pair)?;
            current.reload()?;
            tracing::info!(certificate = name, "certificates: renewed");
        }
        Ok(())
    }

    /// Whether a certificate is the cluster's and lasts.
    fn is_current(&self, name: &str) -> anyhow::Result<bool> {
        let file = self.directory.join(format!("{name}.crt"));
        let text = atomic::read_file(&file)?.with_context(|| file.display().to_string())?;
        Ok(pki::is_issued_by(&text, &self.ca)? && pki::expiry(&text)? > SystemTime::now() + RENEW_BEFORE)
    }
}

/// A client with the certificate of the node in a data directory.
pub fn node_client(instance: &ClusterInstance, server: &str) -> anyhow::Result<Client> {
    let directory = instance.pki();
    let ca_file = directory.join("ca.crt");
    let ca = atomic::read_file(&ca_file)?.with_context(|| ca_file.display().to_string())?;
    NodeIdentity::load(directory, server, ca)?.client("ferry")
}

/// A client that shows a bootstrap token.
fn token_client(server: &str, ca: &str, token: &str) -> anyhow::Result<Client> {
    let mut config = Config::new(server.parse().with_context(|| format!("{server:?} is not a URL"))?);
    let der = CertificateDer::from_pem_slice(ca.as_bytes()).map_err(|error| anyhow!("CA: {error}"))?;
    config.root_cert = Some(vec![der.to_vec()]);
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
    config.headers.push((USER_AGENT, HeaderValue::from_static("ferry-join")));
    Ok(Client::try_from(config)?)
}

fn pair_exists(directory: &Path, name: &str) -> bool {
    ["crt", "key"].iter().all(|extension| directory.join(format!("{name}.{extension}")).exists())
}

fn write_pair(directory: &Path, name: &str, pair: &CertificatePair) -> anyhow::Result<()> {
    // The key first: a pair without its certificate is asked for again.
    let file = |extension: &str| directory.join(format!("{name}.{extension}"));
    atomic::write_file(&file("key"), pair.key.as_bytes(), atomic::PRIVATE)?;
    Ok(atomic::write_file(&file("crt"), pair.certificate.as_bytes(), atomic::PUBLIC)?)
}

fn root_store(ca: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    Ok(roots)
}
