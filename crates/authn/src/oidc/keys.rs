//! An issuer's published keys (JWKS). They are fetched when a token names an unknown key, at most once per `max-age`;
//! concurrent requests share one fetch.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use api::{Value, meta};
use apiserver_core::http_client::Endpoint;
use http::{HeaderMap, header};
use tokio::sync::Mutex;

use crate::{
    AuthenticationErrors,
    tokens::{Jwt, PublicKey},
};

/// Timeout of requests to the issuer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Keys are refreshed this long before they expire.
const REFRESH_MARGIN: Duration = Duration::from_secs(30);
const VERIFICATION_FAILED: &str = "failed to verify id token signature";

/// The published keys of an issuer.
pub struct RemoteKeySet {
    endpoint: Endpoint,
    cached: RwLock<Arc<CachedKeys>>,
    fetching: Mutex<()>,
}

#[derive(Default)]
struct CachedKeys {
    keys: Vec<PublicKey>,
    /// Expiry according to the issuer.
    expires_at: Option<Instant>,
}

impl CachedKeys {
    fn verify_signature(&self, jwt: &Jwt<'_>) -> bool {
        jwt.verify_signature(self.keys.iter().filter(|key| jwt.key_id.is_empty() || key.id() == jwt.key_id))
    }

    fn is_current(&self) -> bool {
        self.expires_at.is_some_and(|expires_at| Instant::now() + REFRESH_MARGIN <= expires_at)
    }
}

impl RemoteKeySet {
    /// The keys published at `endpoint`.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, cached: RwLock::default(), fetching: Mutex::default() }
    }

    /// Verifies the signature of a token. Known keys stay valid after their expiry while the issuer cannot be reached.
    pub async fn verify_signature(&self, jwt: &Jwt<'_>) -> Result<(), AuthenticationErrors> {
        let cached = self.cached_keys();
        if cached.verify_signature(jwt) {
            return Ok(());
        }
        if cached.is_current() {
            return Err(VERIFICATION_FAILED.into());
        }
        let fresh = self.refresh_after(&cached).await.map_err(|error| format!("fetching keys {error}"))?;
        if fresh.verify_signature(jwt) { Ok(()) } else { Err(VERIFICATION_FAILED.into()) }
    }

    fn cached_keys(&self) -> Arc<CachedKeys> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the keys that are newer than `before`, fetched by this task or another.
    async fn refresh_after(&self, before: &Arc<CachedKeys>) -> Result<Arc<CachedKeys>, AuthenticationErrors> {
        let _fetching = self.fetching.lock().await;
        let cached = self.cached_keys();
        if !Arc::ptr_eq(&cached, before) {
            return Ok(cached);
        }
        let fresh = Arc::new(self.fetch_keys().await?);
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        Ok(fresh)
    }

    async fn fetch_keys(&self) -> Result<CachedKeys, AuthenticationErrors> {
        let response =
            self.endpoint.get(REQUEST_TIMEOUT).await.map_err(|error| format!("oidc: get keys failed {error}"))?;
        let expires_at = max_age(&response.headers).map(|age| Instant::now() + age);
        let body = response.into_success_body().map_err(|error| format!("oidc: get keys failed: {error}"))?;
        let set: Value =
            serde_json::from_slice(&body).map_err(|error| format!("oidc: failed to decode keys: {error}"))?;
        // Keys of other types are skipped.
        let keys = meta::list_at(&set, &["keys"]).iter().filter_map(PublicKey::from_jwk).collect();
        Ok(CachedKeys { keys, expires_at })
    }
}

/// Returns the `max-age` of a response.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::CACHE_CONTROL)?.to_str().ok()?.to_ascii_lowercase();
    let mut age = None;
    for directive in text.split(',').map(str::trim) {
        match directive.split_once('=') {
            Some(("max-age", seconds)) => age = seconds.trim_matches('"').parse().ok(),
            None if directive == "no-store" || directive == "no-cache" => return None,
            _ => {}
        }
    }
    // Limited to a year.
    age.map(|seconds: u64| Duration::from_secs(seconds.min(31_536_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_age_of_response_is_parsed() {
        for (text, want) in [
            ("public, max-age=3600", Some(3600)),
            ("max-age=\"60\"", Some(60)),
            ("MAX-AGE=1, must-revalidate", Some(1)),
            ("no-store, max-age=60", None),
            ("max-age=60, no-cache", None),
            ("max-age=x", None),
            ("public", None),
            ("max-age=99999999999", Some(31_536_000)),
        ] {
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, text.parse().unwrap())]);
            assert_eq!(max_age(&headers), want.map(Duration::from_secs), "{text}");
        }
        assert_eq!(max_age(&HeaderMap::new()), None);
    }
}
