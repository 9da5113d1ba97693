//! The HTTPS endpoint of a component beside the API server: health, metrics and configuration, with authentication and
//! authorization delegated to the API server.

use std::{
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context, bail};
use apiserver::{AuthenticationConfig, CaBundle, ClientCertificateVerifier};
use client::{LeaderFence, certificates::ReloadingCertificate};
use component_server::{
    ComponentEndpoints, DelegatedAuth, DelegatedAuthConfig, HttpsHandler, ResponseBody, UnhealthyError, UserInfo,
    serve_https,
};
use futures::StreamExt;
use http::{Request, Response};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use rustls::{
    ServerConfig,
    pki_types::CertificateDer,
    version::{TLS12, TLS13},
};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{flags::ParsedFlags, pki::crypto_provider, self_signed::SelfSignedCertificate, shutdown::ComponentSet};

/// The ConfigMap with the API server's client CAs.
const AUTHENTICATION_CONFIG_MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// Time after which a leader that neither renewed its lease nor stopped leading is reported as unhealthy.
const EXPIRED_LEASE_TOLERANCE: Duration = Duration::from_secs(20);

/// The serving, authentication and authorization flags of a component.
pub struct ComponentServingOptions {
    bind_address: IpAddr,
    /// 0 serves nothing.
    port: u16,
    certificate: Option<Arc<ReloadingCertificate>>,
    cert_dir: Option<PathBuf>,
    tls13_only: bool,
    client_ca: Option<CaBundle>,
    skip_lookup: bool,
    always_allow_paths: Vec<String>,
    auth: DelegatedAuthConfig,
    /// Kubeconfigs of the reviews, if they are not the component's.
    authentication_kubeconfig: Option<PathBuf>,
    /// Renders `/metrics`.
    pub metrics: fn() -> String,
    /// The lease of the component and its fence, for the health check `leaderElection`.
    pub leader_election: Option<(String, LeaderFence)>,
}

impl ComponentServingOptions {
    /// Checks the given flags.
    pub fn from_flags(given: &ParsedFlags<'_>) -> anyhow::Result<Self> {
        let path = |flag: &str| given.text(flag).map(PathBuf::from);
        let certificate = match (path("tls-cert-file"), path("tls-private-key-file")) {
            (Some(certificate), Some(key)) => Some(
                ReloadingCertificate::load(&certificate, &key, crypto_provider())
                    .context("--tls-cert-file and --tls-private-key-file")?,
            ),
            (None, None) => None,
            _ => bail!("--tls-cert-file and --tls-private-key-file belong together: give both or neither"),
        };
        let client_ca = match path("client-ca-file") {
            Some(file) => {
                let pem = fs::read_to_string(&file).with_context(|| format!("--client-ca-file {}", file.display()))?;
                Some(CaBundle::from_pem(&pem).context("--client-ca-file")?)
            }
            None => None,
        };
        Ok(Self {
            bind_address: given.value("bind-address")?.unwrap_or(IpAddr::from([0, 0, 0, 0])),
            port: given.value("secure-port")?.unwrap_or_default(),
            certificate,
            cert_dir: path("cert-dir"),
            tls13_only: given.requires_tls13()?,
            client_ca,
            skip_lookup: given.bool("authentication-skip-lookup")?,
            always_allow_paths: given.many("authorization-always-allow-paths"),
            auth: DelegatedAuthConfig {
                token_ttl: given.duration("authentication-token-webhook-cache-ttl")?,
                allowed_ttl: given.duration("authorization-webhook-cache-authorized-ttl")?,
                denied_ttl: given.duration("authorization-webhook-cache-unauthorized-ttl")?,
            },
            authentication_kubeconfig: path("authentication-kubeconfig").or_else(|| path("authorization-kubeconfig")),
            metrics: client::metrics::render_component_metrics,
            leader_election: None,
        })
    }

    /// Listens and serves until shutdown. `client` sends the reviews unless the flags name another kubeconfig.
    pub async fn start(
        self,
        component: &'static str,
        client: Client,
        configz: Value,
        components: &mut ComponentSet,
    ) -> anyhow::Result<()> {
        if self.port == 0 {
            return Ok(());
        }
        let client = match &self.authentication_kubeconfig {
            Some(file) => client::transport::client_from_kubeconfig(file).await?,
            None => client,
        };
        let (address, port) = (self.bind_address, self.port);
        let listener = TcpListener::bind((address, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on {address} port {port}"))?;
        let config = AuthenticationConfig { client_ca: self.client_ca.clone(), ..Default::default() };
        let verifier = apiserver::client_verifier(&config);
        let tls = self.tls_config(component, verifier.clone())?;
        let auth = DelegatedAuth::new(client.clone(), self.auth);
        let mut endpoints = ComponentEndpoints::new(auth, self.always_allow_paths, self.metrics, configz);
        if let Some((lease, fence)) = self.leader_election {
            endpoints = endpoints.with_check("leaderElection", Box::new(move || check_lease(&lease, &fence)));
        }
        let server = Arc::new(ServedComponent { endpoints, client_ca: RwLock::new(self.client_ca.clone()), verifier });
        if let Some(certificate) = self.certificate {
            components.start("certificate reload", |shutdown| async move {
                certificate.run(shutdown).await;
                Ok(())
            });
        }
        if self.client_ca.is_none() && !self.skip_lookup {
            let server = server.clone();
            components.start("client CA", |shutdown| async move {
                shutdown.run_until_cancelled(server.follow_client_ca(client)).await;
                Ok(())
            });
        }
        tracing::info!(%address, port, "serving");
        components.start("HTTPS endpoint", |shutdown: CancellationToken| async move {
            serve_https(server, listener, tls, shutdown).await;
            Ok(())
        });
        Ok(())
    }

    fn tls_config(
        &self,
        component: &str,
        verifier: Arc<ClientCertificateVerifier>,
    ) -> anyhow::Result<Arc<ServerConfig>> {
        let versions: &[_] = if self.tls13_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let builder = ServerConfig::builder_with_provider(crypto_provider()).with_protocol_versions(versions)?;
        let builder = builder.with_client_cert_verifier(verifier);
        let mut config = match &self.certificate {
            Some(certificate) => builder.with_cert_resolver(certificate.clone()),
            None => {
                let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
                let subject = SelfSignedCertificate { pair_name: component, host: &host, names: &[], ips: Vec::new() };
                let (chain, key) = subject.load_or_create(self.cert_dir.as_deref())?;
                builder.with_single_cert(chain, key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Fails if the component still leads long after the end of its lease.
fn check_lease(lease: &str, fence: &LeaderFence) -> Result<(), UnhealthyError> {
    match fence.overdue() {
        Some(overdue) if overdue > EXPIRED_LEASE_TOLERANCE => {
            Err(UnhealthyError(format!("failed election to renew leadership on lease {lease}")))
        }
        _ => Ok(()),
    }
}

/// The endpoints with the CA of client certificates.
struct ServedComponent {
    endpoints: ComponentEndpoints,
    client_ca: RwLock<Option<CaBundle>>,
    verifier: Arc<ClientCertificateVerifier>,
}

impl HttpsHandler for ServedComponent {
    fn user_of_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<UserInfo> {
        let client_ca = self.client_ca.read().unwrap_or_else(PoisonError::into_inner);
        client_ca.as_ref()?.verify_chain(chain).ok()?;
        UserInfo::from_certificate(chain.first()?)
    }

    async fn handle(
        self: Arc<Self>,
        certificate_user: Arc<Option<UserInfo>>,
        mut request: Request<Incoming>,
    ) -> Response<ResponseBody> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let path_and_query = (uri.path(), uri.query().unwrap_or_default());
        let user = (*certificate_user).as_ref();
        self.endpoints.respond(user, &method, path_and_query, request.headers_mut()).await
    }
}

impl ServedComponent {
    /// Uses the client CA that the API server publishes, and follows its changes.
    async fn follow_client_ca(&self, client: Client) {
        let (namespace, name) = AUTHENTICATION_CONFIG_MAP;
        let api: Api<ConfigMap> = Api::namespaced(client, namespace);
        let selected = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = std::pin::pin!(watcher(api, selected).default_backoff().applied_objects());
        while let Some(change) = changes.next().await {
            match change {
                Ok(config_map) => self.set_client_ca(&config_map),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the client CA from ConfigMap {namespace}/{name}, retrying");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn set_client_ca(&self, config_map: &ConfigMap) {
        let pem = config_map.data.as_ref().and_then(|data| data.get("client-ca-file"));
        let Some(pem) = pem.filter(|pem| !pem.is_empty()) else { return };
        match CaBundle::from_pem(pem) {
            Ok(client_ca) => {
                let config = AuthenticationConfig { client_ca: Some(client_ca.clone()), ..Default::default() };
                *self.client_ca.write().unwrap_or_else(PoisonError::into_inner) = Some(client_ca);
                self.verifier.update_hints(&config);
            }
            Err(error) => tracing::warn!(%error, "the published client CA is invalid"),
        }
    }
}
