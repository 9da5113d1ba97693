//! A cache of token authentications: a token is verified once per TTL, and once for all concurrent requests with it.
//! Keys are HMAC digests of tokens; the number of entries is bounded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use ring::{hmac, rand::SystemRandom};
use tokio::sync::OnceCell;

use super::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator};

/// Number of shards, to reduce lock contention.
const SHARDS: usize = 32;
/// Maximum number of entries per shard; upstream's value.
const SHARD_CAPACITY: usize = 1024;
/// Timeout of an authentication that requests wait for.
const VERIFICATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The operating system's random source failed, so the token cache has no HMAC key.
#[derive(Debug, thiserror::Error)]
#[error("token cache: the system's random source failed")]
pub struct RandomSourceError;

/// TTLs of authentication results.
#[derive(Clone, Copy, Debug)]
pub struct TokenCacheTtls {
    /// TTL of successes.
    pub success: Duration,
    /// TTL of unknown tokens.
    pub unknown: Duration,
    /// Whether errors are cached, with the TTL of unknown tokens.
    pub errors: bool,
}

impl TokenCacheTtls {
    /// Caches successes only.
    pub fn successes_only(success: Duration) -> Self {
        Self { success, unknown: Duration::ZERO, errors: true }
    }

    fn ttl_for(&self, result: &AuthenticationResult) -> Duration {
        match result {
            Ok(Some(_)) => self.success,
            Ok(None) => self.unknown,
            Err(_) if self.errors => self.unknown,
            Err(_) => Duration::ZERO,
        }
    }
}

type TokenDigest = [u8; 32];
/// A result and its expiry.
type ResultCell = Arc<OnceCell<(AuthenticationResult, Instant)>>;

/// A token authenticator with a cache.
pub struct TokenCache<L> {
    authenticator: L,
    ttls: TokenCacheTtls,
    hmac_key: hmac::Key,
    shards: Vec<Mutex<HashMap<TokenDigest, ResultCell>>>,
}

impl<L: TokenAuthenticator> TokenCache<L> {
    /// Caches the results of `authenticator`. The HMAC key comes from the system's random source; there is no fallback,
    /// because a predictable key would let digests be computed outside of this process.
    pub fn new(authenticator: L, ttls: TokenCacheTtls) -> Result<Self, RandomSourceError> {
        let hmac_key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| RandomSourceError)?;
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Ok(Self { authenticator, ttls, hmac_key, shards })
    }

    fn token_digest(&self, token: &str, audiences: &[String]) -> TokenDigest {
        let mut context = hmac::Context::with_key(&self.hmac_key);
        for text in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
            // Length-prefixed, so that different inputs cannot collide.
            context.update(&text.len().to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    fn lock_shard(&self, digest: &TokenDigest) -> std::sync::MutexGuard<'_, HashMap<TokenDigest, ResultCell>> {
        self.shards[usize::from(digest[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cell of a token, which may still be empty.
    fn cell_for(&self, digest: TokenDigest) -> ResultCell {
        let now = Instant::now();
        let is_live = |cell: &ResultCell| cell.get().is_none_or(|(_, expires_at)| *expires_at > now);
        let mut shard = self.lock_shard(&digest);
        if let Some(cell) = shard.get(&digest).filter(|cell| is_live(cell)) {
            return cell.clone();
        }
        if shard.len() >= SHARD_CAPACITY {
            shard.retain(|_, cell| is_live(cell));
        }
        if shard.len() >= SHARD_CAPACITY
            && let Some(victim) = shard.keys().next().copied()
        {
            shard.remove(&victim);
        }
        let cell = ResultCell::default();
        shard.insert(digest, cell.clone());
        cell
    }

    fn remove_cell(&self, digest: &TokenDigest, cell: &ResultCell) {
        let mut shard = self.lock_shard(digest);
        if shard.get(digest).is_some_and(|cached| Arc::ptr_eq(cached, cell)) {
            shard.remove(digest);
        }
    }
}

#[async_trait]
impl<L: TokenAuthenticator> TokenAuthenticator for TokenCache<L> {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let digest = self.token_digest(token, audiences);
        let cell = self.cell_for(digest);
        let authentication = async {
            let timed_out = || Err(AuthenticationErrors::single("the token could not be verified in time"));
            let result =
                tokio::time::timeout(VERIFICATION_TIMEOUT, self.authenticator.authenticate_token(token, audiences))
                    .await;
            let result = result.unwrap_or_else(|_| timed_out());
            let expires_at = Instant::now() + self.ttls.ttl_for(&result);
            (result, expires_at)
        };
        let (result, expires_at) = cell.get_or_init(|| authentication).await;
        if *expires_at <= Instant::now() {
            self.remove_cell(&digest, &cell);
        }
        result.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apiserver_core::User;

    use super::*;
    use crate::AuthenticationResponse;

    #[derive(Default)]
    struct CountingAuthenticator(AtomicUsize);

    #[async_trait]
    impl TokenAuthenticator for CountingAuthenticator {
        async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            match token {
                "good" => Ok(Some(AuthenticationResponse::for_user(User { name: "joe".into(), ..User::default() }))),
                "wrong" => Err(AuthenticationErrors::single("wrong")),
                _ => Ok(None),
            }
        }
    }

    /// Authenticates twice and checks how often the authenticator was called.
    async fn check_calls(ttls: TokenCacheTtls, token: &str, calls: usize) {
        let cache = TokenCache::new(CountingAuthenticator::default(), ttls).unwrap();
        let first = cache.authenticate_token(token, &[]).await;
        assert_eq!(cache.authenticate_token(token, &[]).await, first);
        assert_eq!(cache.authenticator.0.load(Ordering::Relaxed), calls, "{token} {ttls:?}");
    }

    #[tokio::test]
    async fn results_are_cached_for_their_ttl() {
        let long = Duration::from_secs(3600);
        let only_good = TokenCacheTtls::successes_only(long);
        let all = TokenCacheTtls { success: long, unknown: long, errors: true };
        let no_errors = TokenCacheTtls { errors: false, ..all };
        let none = TokenCacheTtls::successes_only(Duration::ZERO);
        for (ttls, good, unknown, wrong) in
            [(only_good, 1, 2, 2), (all, 1, 1, 1), (no_errors, 1, 1, 2), (none, 2, 2, 2)]
        {
            check_calls(ttls, "good", good).await;
            check_calls(ttls, "unknown", unknown).await;
            check_calls(ttls, "wrong", wrong).await;
        }
    }

    #[tokio::test]
    async fn results_are_cached_per_audience() {
        let cache = TokenCache::new(
            CountingAuthenticator::default(),
            TokenCacheTtls::successes_only(Duration::from_secs(3600)),
        )
        .unwrap();
        for audiences in [vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()], vec!["ab".to_owned()]] {
            assert!(cache.authenticate_token("good", &audiences).await.unwrap().is_some());
        }
        assert_eq!(cache.authenticator.0.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn concurrent_requests_verify_a_token_once() {
        let cache = TokenCache::new(
            CountingAuthenticator::default(),
            TokenCacheTtls::successes_only(Duration::from_secs(3600)),
        )
        .unwrap();
        futures::future::join_all((0..50).map(|_| cache.authenticate_token("good", &[]))).await;
        assert_eq!(cache.authenticator.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn number_of_entries_is_bounded() {
        let cache = TokenCache::new(
            CountingAuthenticator::default(),
            TokenCacheTtls { success: VERIFICATION_TIMEOUT, unknown: VERIFICATION_TIMEOUT, errors: true },
        )
        .unwrap();
        for n in 0..3 * SHARDS * SHARD_CAPACITY {
            cache.cell_for(cache.token_digest(&n.to_string(), &[]));
        }
        assert!(cache.shards.iter().all(|shard| shard.lock().unwrap().len() <= SHARD_CAPACITY));
    }

    #[test]
    fn keys_are_drawn_at_random() {
        let caches = [(); 2].map(|()| {
            let ttls = TokenCacheTtls::successes_only(VERIFICATION_TIMEOUT);
            TokenCache::new(CountingAuthenticator::default(), ttls).unwrap()
        });
        let [first, second] = caches.map(|cache| cache.token_digest("good", &[]));
        assert_ne!(first, second);
    }
}
