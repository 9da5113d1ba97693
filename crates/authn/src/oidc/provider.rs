//! OIDC discovery: the location of an issuer's keys. It is retried until it succeeds, because an issuer may run in this
//! cluster.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use api::{Value, meta};
use apiserver_core::http_client::{Endpoint, TlsConfigError, client_config_builder, load_root_certificates};
use rustls::ClientConfig;

use super::{
    JwtIssuer,
    keys::{REQUEST_TIMEOUT, RemoteKeySet},
};
use crate::AuthenticationErrors;

/// Delay between attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// An issuer and its keys.
pub struct OidcProvider {
    url: String,
    discovery_url: String,
    authority: Option<String>,
    keys: OnceLock<RemoteKeySet>,
}

impl OidcProvider {
    /// Starts discovery in the background.
    pub fn start_discovery(issuer: &JwtIssuer) -> Arc<Self> {
        let default_url = || format!("{}{DISCOVERY_PATH}", issuer.url.trim_end_matches('/'));
        let provider = Arc::new(Self {
            url: issuer.url.clone(),
            discovery_url: issuer.discovery_url.clone().unwrap_or_else(default_url),
            authority: issuer.authority.clone(),
            keys: OnceLock::new(),
        });
        tokio::spawn(run_discovery(Arc::downgrade(&provider)));
        provider
    }

    /// The keys, once discovery has succeeded.
    pub fn keys(&self) -> Option<&RemoteKeySet> {
        self.keys.get()
    }

    async fn discover_keys(&self) -> Result<RemoteKeySet, AuthenticationErrors> {
        let tls = self.tls_config().map_err(|error| error.to_string())?;
        let endpoint = Endpoint::new(&self.discovery_url, tls.clone()).map_err(|error| error.to_string())?;
        let response = endpoint.get(REQUEST_TIMEOUT).await.and_then(|response| response.into_success_body());
        let response = response.map_err(|error| format!("{}: {error}", self.discovery_url))?;
        let discovery: Value = serde_json::from_slice(&response)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let (issuer, keys) = (meta::string_at(&discovery, &["issuer"]), meta::string_at(&discovery, &["jwks_uri"]));
        if issuer != self.url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {issuer:?}",
                self.url
            )
            .into());
        }
        Endpoint::new(keys, tls).map(RemoteKeySet::new).map_err(|error| format!("jwks_uri: {error}").into())
    }

    fn tls_config(&self) -> Result<Arc<ClientConfig>, TlsConfigError> {
        Ok(Arc::new(client_config_builder(load_root_certificates(self.authority.as_deref())?)?.with_no_client_auth()))
    }
}

/// Retries discovery until it succeeds or the provider is dropped.
async fn run_discovery(provider: Weak<OidcProvider>) {
    while let Some(current) = provider.upgrade() {
        match current.discover_keys().await {
            // Only this task sets the keys.
            Ok(keys) => return drop(current.keys.set(keys)),
            Err(error) => tracing::warn!(issuer = current.url, %error, "oidc: discovery failed, retrying"),
        }
        drop(current);
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
