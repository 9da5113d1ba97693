//! An issuer's description of itself, from which its keys are known. It is asked for until it is there: an issuer may well
//! run on the cluster that this server is of.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use api::{Value, meta};
use apiserver_core::http_client::{Endpoint, client_config_builder, load_root_certificates};
use rustls::ClientConfig;

use super::{JwtIssuer, keys::Keys};

/// How long the issuer may take to answer.
pub const LIMIT: Duration = Duration::from_secs(30);
/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_secs(10);
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// An issuer.
pub struct Provider {
    url: String,
    discovery: String,
    authority: Option<String>,
    keys: OnceLock<Keys>,
}

impl Provider {
    /// Begins to ask.
    pub fn start(issuer: &JwtIssuer) -> Arc<Self> {
        let below = || format!("{}{WELL_KNOWN}", issuer.url.trim_end_matches('/'));
        let provider = Arc::new(Self {
            url: issuer.url.clone(),
            discovery: issuer.discovery_url.clone().unwrap_or_else(below),
            authority: issuer.authority.clone(),
            keys: OnceLock::new(),
        });
        tokio::spawn(initialize(Arc::downgrade(&provider)));
        provider
    }

    /// Its keys, once it is known where they are.
    pub fn keys(&self) -> Option<&Keys> {
        self.keys.get()
    }

    async fn discover(&self) -> Result<Keys, String> {
        let tls = self.tls()?;
        let endpoint = Endpoint::new(&self.discovery, tls.clone()).map_err(|error| error.to_string())?;
        let answer = endpoint.get(LIMIT).await.and_then(|answer| answer.into_success_body());
        let answer = answer.map_err(|error| format!("{}: {error}", self.discovery))?;
        let described: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let (named, keys) = (meta::string_at(&described, &["issuer"]), meta::string_at(&described, &["jwks_uri"]));
        if named != self.url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {named:?}",
                self.url
            ));
        }
        Endpoint::new(keys, tls).map(Keys::new).map_err(|error| format!("jwks_uri: {error}"))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        Ok(Arc::new(client_config_builder(load_root_certificates(self.authority.as_deref())?)?.with_no_client_auth()))
    }
}

/// Asks until it is known where the keys are, or nobody wants to know.
async fn initialize(provider: Weak<Provider>) {
    while let Some(asked) = provider.upgrade() {
        match asked.discover().await {
            // Nobody else sets it.
            Ok(keys) => return drop(asked.keys.set(keys)),
            Err(why) => tracing::warn!(issuer = asked.url, why, "an issuer of tokens cannot be asked for its keys"),
        }
        drop(asked);
        tokio::time::sleep(PAUSE).await;
    }
}
