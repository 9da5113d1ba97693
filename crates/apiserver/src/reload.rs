//! Reloads the authentication and authorization configuration files when they change. An invalid file is logged and
//! counted, and the previous configuration stays in effect.
//!
//! As upstream, a reloaded authorization configuration may only name authorizer types that were enabled at start,
//! besides webhooks; a reloaded authentication configuration replaces issuers and anonymous access.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use apiserver_core::{metrics::MetricsPage, storage::ObjectStorage};
use authn::{AuthenticationFile, Authenticator};
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
    /// Time between reads.
    pub period: Duration,
}

impl Default for ReloadOptions {
    fn default() -> Self {
        Self { authorization: None, authentication: None, period: RELOAD_PERIOD }
    }
}

/// Reloads the files until `shutdown`.
pub async fn run_reload(server: &Server, shutdown: &CancellationToken) {
    let ReloadOptions { authorization, authentication, .. } = &server.shared.options.reload;
    let authorization = async {
        if let Some(watched) = authorization {
            watch_file(server, shutdown, "authorization", watched, |text| server.reload_authorization(text)).await;
        }
    };
    let authentication = async {
        if let Some((watched, own)) = authentication {
            watch_file(server, shutdown, "authentication", watched, |text| server.reload_authentication(text, own))
                .await;
        }
    };
    tokio::join!(authorization, authentication);
}

/// The error of an unusable configuration file.
type ReloadError = Box<dyn std::error::Error + Send + Sync>;

async fn watch_file(
    server: &Server,
    shutdown: &CancellationToken,
    what: &'static str,
    watched: &WatchedFile,
    apply: impl Fn(&str) -> Result<(), ReloadError>,
) {
    let mut last = watched.text.clone();
    let period = server.shared.options.reload.period;
    while shutdown.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        let outcome = match fs::read_to_string(&watched.file) {
            Ok(text) if text == last => continue,
            Ok(text) => {
                last = text;
                apply(&last)
            }
            Err(error) => Err(error.into()),
        };
        match &outcome {
            Ok(()) => tracing::info!(file = %watched.file.display(), "the configuration of {what} was read again"),
            Err(why) => tracing::error!(file = %watched.file.display(), %why, "reloading {what} config"),
        }
        server.shared.reloads.record_reload(what, outcome.is_ok().then_some(last.as_str()));
    }
}

impl Server {
    /// Replaces the authorizers.
    fn reload_authorization(&self, text: &str) -> Result<(), ReloadError> {
        let policies = self.shared.options.authorization.modes.iter().find_map(|mode| match mode {
            AuthorizationMode::Abac(policies) => Some(policies),
            _ => None,
        });
        Ok(self.authorizers().replace_modes(&config::parse_configuration(text, policies)?)?)
    }

    /// Replaces the authenticators.
    fn reload_authentication(&self, text: &str, own: &[String]) -> Result<(), ReloadError> {
        let file = AuthenticationFile::parse(text, own)?;
        let mut settings = self.shared.options.authentication.clone();
        settings.issuers = file.issuers;
        if let Some((anonymous, paths)) = file.anonymous {
            (settings.anonymous, settings.anonymous_paths) = (anonymous, paths);
        }
        let storage: Arc<dyn ObjectStorage> = self.shared.registry.clone();
        let new = Authenticator::new(&settings, self.shared.tokens.as_ref(), &storage)?;
        self.shared.authenticator.replace(new);
        Ok(())
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
    };

    use super::*;
    use crate::{AuthorizationOptions, ServerOptions, fixture};

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";

    /// Everybody may do everything, and roles count.
    fn all() -> AuthorizationOptions {
        AuthorizationOptions { modes: vec![AuthorizationMode::AlwaysAllow, AuthorizationMode::Rbac] }
    }

    /// What becomes of a configuration in a server that began with roles.
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
                .is_allowed(&Attributes { user: &user, verb: "get", target: AttributesTarget::NonResource("/x") })
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
        assert!(found().await);
        server.reload_authentication(&file(false), &[]).unwrap();
        assert!(!found().await);
        assert!(server.reload_authentication("kind: Pod", &[]).is_err());
        assert!(!found().await, "the old one goes on counting");
        server.reload_authentication(&file(true), &[]).unwrap();
        assert!(found().await);
    }
}
