//! Reloads the authentication and authorization configuration files and the CA bundles of client certificates when they
//! change. An invalid file is logged and counted, and the previous configuration stays in effect.
//!
//! As upstream, a reloaded authorization configuration may only name authorizer types that were enabled at start,
//! besides webhooks; a reloaded authentication configuration replaces issuers and anonymous access.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use apiserver_core::{metrics::MetricsPage, storage::ObjectStorage};
use authn::{AuthenticationConfig, AuthenticationFile, Authenticator, CaBundle, ClientCertificateVerifier};
use authz::{AuthorizationMode, config};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{Server, bootstrap};

/// Default time between reads.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// A configuration file with its initial content.
#[derive(Clone, Debug)]
pub struct WatchedFile {
    /// The path.
    pub file: PathBuf,
    /// The content at start.
    pub text: String,
}

/// Configuration files that are reloaded.
#[derive(Clone, Debug)]
pub struct ReloadOptions {
    /// `--authorization-config`.
    pub authorization: Option<WatchedFile>,
    /// `--authentication-config`, and the issuers that are this server's own.
    pub authentication: Option<(WatchedFile, Vec<String>)>,
    /// `--client-ca-file`.
    pub client_ca: Option<WatchedFile>,
    /// `--requestheader-client-ca-file`.
    pub proxy_ca: Option<WatchedFile>,
    /// The listener's verifier, which requests certificates of these CAs.
    pub client_verifier: Option<Arc<ClientCertificateVerifier>>,
    /// Time between reads.
    pub period: Duration,
}

impl Default for ReloadOptions {
    fn default() -> Self {
        let (authorization, authentication, client_ca, proxy_ca) = (None, None, None, None);
        let (client_verifier, period) = (None, RELOAD_PERIOD);
        Self { authorization, authentication, client_ca, proxy_ca, client_verifier, period }
    }
}

/// A file that is reloaded.
#[derive(Clone, Copy)]
enum ReloadedFile<'a> {
    Authorization,
    Authentication { own_issuers: &'a [String] },
    ClientCa,
    ProxyCa,
}

/// Reloads the files until `shutdown`.
pub async fn run_reload(server: &Server, shutdown: &CancellationToken) {
    let ReloadOptions { authorization, authentication, client_ca, proxy_ca, .. } = &server.shared.options.reload;
    let authentication = authentication.as_ref();
    let authentication =
        authentication.map(|(watched, own_issuers)| (ReloadedFile::Authentication { own_issuers }, watched));
    let others = [
        (ReloadedFile::Authorization, authorization),
        (ReloadedFile::ClientCa, client_ca),
        (ReloadedFile::ProxyCa, proxy_ca),
    ];
    let others = others.into_iter().filter_map(|(file, watched)| Some((file, watched.as_ref()?)));
    let watches = others.chain(authentication).map(|(file, watched)| watch_file(server, shutdown, file, watched));
    futures::future::join_all(watches).await;
}

/// The error of an unusable configuration file.
type ReloadError = Box<dyn std::error::Error + Send + Sync>;

async fn watch_file(server: &Server, shutdown: &CancellationToken, kind: ReloadedFile<'_>, watched: &WatchedFile) {
    let mut last = watched.text.clone();
    let (period, file) = (server.shared.options.reload.period, watched.file.display());
    while shutdown.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        let outcome = match tokio::fs::read_to_string(&watched.file).await {
            Ok(text) if text == last => continue,
            Ok(text) => {
                last = text;
                server.apply_reload(kind, &last).await
            }
            Err(error) => Err(error.into()),
        };
        match &outcome {
            Ok(()) => tracing::info!(%file, "reload: file applied"),
            Err(error) => tracing::error!(%file, %error, "reload: file rejected, keeping the current configuration"),
        }
        if let Some(name) = kind.metrics_name() {
            server.shared.reloads.record_reload(name, outcome.is_ok().then_some(last.as_str()));
        }
    }
}

impl ReloadedFile<'_> {
    /// The name in upstream's metrics, which count configuration files only.
    fn metrics_name(self) -> Option<&'static str> {
        match self {
            ReloadedFile::Authorization => Some("authorization"),
            ReloadedFile::Authentication { .. } => Some("authentication"),
            ReloadedFile::ClientCa | ReloadedFile::ProxyCa => None,
        }
    }
}

impl Server {
    async fn apply_reload(&self, file: ReloadedFile<'_>, text: &str) -> Result<(), ReloadError> {
        match file {
            ReloadedFile::Authorization => self.reload_authorization(text),
            ReloadedFile::Authentication { own_issuers } => {
                let file = AuthenticationFile::parse(text, own_issuers)?;
                self.reload_authentication(|config| {
                    config.issuers = file.issuers;
                    if let Some((anonymous, paths)) = file.anonymous {
                        (config.anonymous, config.anonymous_paths) = (anonymous, paths);
                    }
                })
                .map(drop)
            }
            ReloadedFile::ClientCa => {
                let bundle = CaBundle::from_pem(text)?;
                self.reload_ca_bundle(|config| config.client_ca = Some(bundle)).await
            }
            ReloadedFile::ProxyCa => {
                let bundle = CaBundle::from_pem(text)?;
                self.reload_ca_bundle(|config| config.proxy_ca = Some(bundle)).await
            }
        }
    }

    /// Replaces the authorizers.
    fn reload_authorization(&self, text: &str) -> Result<(), ReloadError> {
        let policies = self.shared.options.authorization.modes.iter().find_map(|mode| match mode {
            AuthorizationMode::Abac(policies) => Some(policies),
            _ => None,
        });
        Ok(self.authorizers().replace_modes(&config::parse_configuration(text, policies)?)?)
    }

    /// Replaces the authenticators by those of the changed configuration, and returns that.
    fn reload_authentication(
        &self,
        change: impl FnOnce(&mut AuthenticationConfig),
    ) -> Result<AuthenticationConfig, ReloadError> {
        let mut current = self.shared.authentication.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = current.clone();
        change(&mut config);
        let storage: Arc<dyn ObjectStorage> = self.shared.registry.clone();
        self.shared.authenticator.replace(Authenticator::new(&config, self.shared.tokens.as_ref(), &storage)?);
        current.clone_from(&config);
        Ok(config)
    }

    /// Replaces a CA bundle: in the authenticators, in the handshake, and in the config map for extension API servers.
    async fn reload_ca_bundle(&self, change: impl FnOnce(&mut AuthenticationConfig)) -> Result<(), ReloadError> {
        let config = self.reload_authentication(change)?;
        if let Some(verifier) = &self.shared.options.reload.client_verifier {
            verifier.update_hints(&config);
        }
        let published = bootstrap::authentication::reconcile_config_maps(&self.shared.registry, &config).await;
        Ok(published.map_err(|status| status.message)?)
    }
}

/// Metrics of reloads.
#[derive(Default)]
pub struct ReloadMetrics(Mutex<BTreeMap<&'static str, ReloadCounts>>);

#[derive(Clone, Default)]
struct ReloadCounts {
    /// Count and last timestamp by status.
    counts: BTreeMap<&'static str, (u64, f64)>,
    /// Hash of the applied configuration.
    hash: Option<String>,
}

impl ReloadMetrics {
    /// Records a reload; `text` is the applied configuration, `None` for a failure.
    fn record_reload(&self, what: &'static str, text: Option<&str>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = all.entry(what).or_default();
        let count = outcomes.counts.entry(if text.is_some() { "success" } else { "failure" }).or_default();
        *count = (count.0 + 1, Timestamp::now().as_duration().as_secs_f64());
        outcomes.hash = text.map(sha256_text).or(outcomes.hash.take());
    }

    /// Writes upstream's metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage, host_name: &str) {
        let server = sha256_text(&bootstrap::identity(host_name));
        for (what, ReloadCounts { counts, hash }) in self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            let name = |rest: &str| format!("apiserver_{what}_config_controller_{rest}");
            let labels = |status: &str| format!("apiserver_id_hash={server:?},status={status:?}");
            let split = "split by status and apiserver identity.";
            let total = format!("[BETA] Total number of automatic reloads of {what} configuration {split}");
            page.write_header(&name("automatic_reloads_total"), &total, "counter");
            for (status, (count, _)) in &counts {
                page.write_sample(&name("automatic_reloads_total"), &labels(status), *count as f64);
            }
            let last = format!("[BETA] Timestamp of the last automatic reload of {what} configuration {split}");
            page.write_header(&name("automatic_reload_last_timestamp_seconds"), &last, "gauge");
            for (status, (_, at)) in &counts {
                page.write_sample(&name("automatic_reload_last_timestamp_seconds"), &labels(status), *at);
            }
            let Some(hash) = hash else { continue };
            let info = format!(
                "[ALPHA] Information about the last applied {what} configuration with hash as label, split by apiserver identity."
            );
            page.write_header(&name("last_config_info"), &info, "gauge");
            page.write_sample(&name("last_config_info"), &format!("apiserver_id_hash={server:?},hash={hash:?}"), 1.0);
        }
    }
}

fn sha256_text(text: &str) -> String {
    let digits: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

#[cfg(test)]
mod tests {
    use apiserver_core::{
        User,
        attributes::{Attributes, AttributesTarget},
        loopback,
    };
    use rustls::server::danger::ClientCertVerifier;

    use super::*;
    use crate::{
        AuthorizationOptions, ServerOptions, fixture,
        tests::authn::{Signer, Subject},
    };

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";

    /// Everybody may do everything, and roles count.
    fn all() -> AuthorizationOptions {
        AuthorizationOptions { modes: vec![AuthorizationMode::AlwaysAllow, AuthorizationMode::Rbac] }
    }

    /// Reloads a configuration in a server that started with RBAC.
    async fn check(text: &str, want: Result<(), &str>) {
        let settings = ServerOptions {
            authorization: AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] },
            ..ServerOptions::default()
        };
        let (server, _dir) = fixture::start_server(settings).await;
        let got = server.reload_authorization(text);
        match want {
            Ok(()) => assert!(got.is_ok(), "{text}: {got:?}"),
            Err(why) => assert!(got.as_ref().is_err_and(|error| error.to_string().contains(why)), "{text}: {got:?}"),
        }
    }

    #[tokio::test]
    async fn invalid_authorization_config_is_rejected() {
        check(&format!("{HEAD}- type: RBAC\n  name: rbac\n"), Ok(())).await;
        let late = "authorizer type Node is not allowed if it was not enabled at initial server startup";
        check(&format!("{HEAD}- type: Node\n  name: node\n"), Err(late)).await;
        check(&format!("{HEAD}- type: Nope\n  name: x\n"), Err("Nope")).await;
        check("nonsense: [", Err("")).await;
        check(&format!("{HEAD}[]"), Err("")).await;
    }

    #[tokio::test]
    async fn reloaded_authorizers_take_effect() {
        let (server, _dir) =
            fixture::start_server(ServerOptions { authorization: all(), ..ServerOptions::default() }).await;
        let user = User { name: "joe".into(), ..User::default() };
        let may = async || {
            server
                .authorizers()
                .check_access(&Attributes { user: &user, verb: "get", target: AttributesTarget::NonResource("/x") })
                .await
        };
        assert!(may().await, "everybody may do everything at first");
        server.reload_authorization(&format!("{HEAD}- type: RBAC\n  name: rbac\n")).unwrap();
        assert!(!may().await);
    }

    #[tokio::test]
    async fn changed_file_is_reloaded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("authorization.yaml");
        let authorization = Some(WatchedFile { file: file.clone(), text: String::new() });
        let reload = ReloadOptions { authorization, period: Duration::from_millis(5), ..ReloadOptions::default() };
        let (server, _dir) =
            fixture::start_server(ServerOptions { reload, authorization: all(), ..ServerOptions::default() }).await;
        let lines = || {
            let mut page = MetricsPage::default();
            server.shared.reloads.write_metrics(&mut page, "host");
            page.into_text()
        };
        let until = async |text: String| {
            std::fs::write(&file, text).unwrap();
            let wanted = |page: &str| page.contains("status=\"success\"} 1\n") && page.contains("status=\"failure\"} ");
            while !wanted(&lines()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let shutdown = CancellationToken::new();
        let work = async {
            // There is no file at first, so that one failure is certain.
            tokio::time::sleep(Duration::from_millis(50)).await;
            until(format!("{HEAD}- type: RBAC\n  name: rbac\n")).await;
            shutdown.cancel();
        };
        let followed = async { tokio::join!(run_reload(&server, &shutdown), work) };
        tokio::time::timeout(Duration::from_secs(20), followed).await.expect("the file is read");
        let page = lines();
        assert!(page.contains("apiserver_authorization_config_controller_automatic_reloads_total{"), "{page}");
        assert!(page.contains("apiserver_authorization_config_controller_last_config_info{"), "{page}");
        assert!(!page.contains("authentication"), "nothing is told of what is not followed");
    }

    #[tokio::test]
    async fn reloaded_authentication_config_sets_anonymous() {
        let settings = ServerOptions {
            authorization: AuthorizationOptions { modes: vec![AuthorizationMode::Rbac] },
            ..ServerOptions::default()
        };
        let (server, _dir) = fixture::start_server(settings).await;
        let file = |enabled: bool| {
            format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: []\nanonymous:\n  enabled: {enabled}\n"
            )
        };
        let found = async || {
            let (mut headers, audiences) = (http::HeaderMap::new(), Vec::new());
            let notes = authn::AuthenticationNotes::default();
            let mut shown = authn::AuthenticationRequest {
                headers: &mut headers,
                peer: None,
                path: "/",
                audiences: &audiences,
                notes,
            };
            server.authenticator().authenticate_request(&mut shown).await.is_ok()
        };
        let authentication = ReloadedFile::Authentication { own_issuers: &[] };
        assert!(found().await);
        server.apply_reload(authentication, &file(false)).await.unwrap();
        assert!(!found().await);
        assert!(server.apply_reload(authentication, "kind: Pod").await.is_err());
        assert!(!found().await, "the old one goes on counting");
        server.apply_reload(authentication, &file(true)).await.unwrap();
        assert!(found().await);
    }

    #[tokio::test]
    async fn reloaded_client_ca_is_verified_requested_and_published() {
        let (old, new) = (Signer::new("old"), Signer::new("new"));
        let mut settings = ServerOptions::default();
        settings.authentication.client_ca = Some(old.authority());
        let verifier = authn::client_verifier(&settings.authentication);
        settings.reload.client_verifier = Some(verifier.clone());
        let (server, _dir) = fixture::start_server(settings).await;
        let is_known = async |signer: &Signer| {
            let (mut headers, notes) = (http::HeaderMap::new(), authn::AuthenticationNotes::default());
            let peer = signer.peer(&Subject { names: &["joe"], ..Subject::default() });
            let mut request = authn::AuthenticationRequest {
                headers: &mut headers,
                peer: Some(&peer),
                path: "/",
                audiences: &Vec::new(),
                notes,
            };
            server.authenticator().authenticate_request(&mut request).await.is_ok()
        };
        assert!(is_known(&old).await && !is_known(&new).await);
        assert!(server.apply_reload(ReloadedFile::ClientCa, "no PEM").await.is_err());
        assert!(is_known(&old).await && !is_known(&new).await);
        server.apply_reload(ReloadedFile::ClientCa, &new.pem()).await.unwrap();
        assert!(!is_known(&old).await && is_known(&new).await);
        let wanted = AuthenticationConfig { client_ca: Some(new.authority()), ..AuthenticationConfig::default() };
        let (hints, wanted) = (verifier.root_hint_subjects(), authn::client_verifier(&wanted));
        let bytes =
            |names: &[rustls::DistinguishedName]| names.iter().map(|name| name.as_ref().to_vec()).collect::<Vec<_>>();
        assert_eq!(bytes(hints), bytes(wanted.root_hint_subjects()));
        let config_maps = loopback::find_resource("", "v1", "configmaps").unwrap();
        let published = server.registry().read_object(config_maps, "kube-system", "extension-apiserver-authentication");
        assert_eq!(published.await.unwrap().0["data"]["client-ca-file"], new.pem());
    }
}
