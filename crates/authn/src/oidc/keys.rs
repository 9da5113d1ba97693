//! The keys that an issuer publishes. They are read when a token names one that is not known, and not again before the issuer
//! said that they may have changed; whoever waits for them waits for one request.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use api::{Value, meta};
use apiserver_core::http_client::Endpoint;
use http::{HeaderMap, header};
use tokio::sync::Mutex;

use super::provider::LIMIT;
use crate::tokens::{Jwt, PublicKey};

/// Keys are read again this long before they end.
const EARLY: Duration = Duration::from_secs(30);
const FAILED: &str = "failed to verify id token signature";

/// An issuer's keys.
pub struct Keys {
    endpoint: Endpoint,
    known: RwLock<Arc<Known>>,
    reading: Mutex<()>,
}

#[derive(Default)]
struct Known {
    keys: Vec<PublicKey>,
    /// Until when the issuer says that they count.
    until: Option<Instant>,
}

impl Known {
    fn verifies(&self, jwt: &Jwt<'_>) -> bool {
        jwt.verify(self.keys.iter().filter(|key| jwt.key_id.is_empty() || key.id() == jwt.key_id))
    }

    fn counts(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() + EARLY <= until)
    }
}

impl Keys {
    /// Those that are published there.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, known: RwLock::default(), reading: Mutex::default() }
    }

    /// Whether one of the keys signed it. Keys that are known count even after their time, for as long as the issuer cannot be
    /// asked.
    pub async fn verify(&self, jwt: &Jwt<'_>) -> Result<(), String> {
        let known = self.known();
        if known.verifies(jwt) {
            return Ok(());
        }
        if known.counts() {
            return Err(FAILED.to_owned());
        }
        let fresh = self.read_after(&known).await.map_err(|why| format!("fetching keys {why}"))?;
        if fresh.verifies(jwt) { Ok(()) } else { Err(FAILED.to_owned()) }
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys, read after those that were not enough; by this task or by one that was faster.
    async fn read_after(&self, before: &Arc<Known>) -> Result<Arc<Known>, String> {
        let _reading = self.reading.lock().await;
        let known = self.known();
        if !Arc::ptr_eq(&known, before) {
            return Ok(known);
        }
        let fresh = Arc::new(self.read().await?);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        Ok(fresh)
    }

    async fn read(&self) -> Result<Known, String> {
        let answer = self.endpoint.get(LIMIT).await.map_err(|error| format!("oidc: get keys failed {error}"))?;
        let until = max_age(&answer.headers).map(|age| Instant::now() + age);
        let body = answer.into_success_body().map_err(|error| format!("oidc: get keys failed: {error}"))?;
        let set: Value =
            serde_json::from_slice(&body).map_err(|error| format!("oidc: failed to decode keys: {error}"))?;
        // Keys of other kinds may be there for other purposes.
        let keys = meta::list_at(&set, &["keys"]).iter().filter_map(PublicKey::from_jwk).collect();
        Ok(Known { keys, until })
    }
}

/// How long an answer may be kept, as it says.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::CACHE_CONTROL)?.to_str().ok()?.to_ascii_lowercase();
    let mut age = None;
    for word in text.split(',').map(str::trim) {
        match word.split_once('=') {
            Some(("max-age", seconds)) => age = seconds.trim_matches('"').parse().ok(),
            None if word == "no-store" || word == "no-cache" => return None,
            _ => {}
        }
    }
    // A year is as good as for ever.
    age.map(|seconds: u64| Duration::from_secs(seconds.min(31_536_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_how_long_they_count() {
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
