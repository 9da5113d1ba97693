//! A cache of token authentications: a token is verified once per TTL, and once for all concurrent requests with it.
//! Keys are HMAC digests of tokens; the number of entries is bounded.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ring::{hmac, rand::SystemRandom};
use tokio::sync::OnceCell;
use ttl_cache::TtlCache;

use super::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator};

/// Maximum number of entries; upstream's value.
const CAPACITY: u64 = 32 * 1024;
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
/// A result that concurrent requests wait for.
type ResultCell = Arc<OnceCell<AuthenticationResult>>;

/// A token authenticator with a cache.
pub struct TokenCache<L> {
    authenticator: L,
    ttls: TokenCacheTtls,
    hmac_key: hmac::Key,
    cells: TtlCache<TokenDigest, ResultCell>,
}

impl<L: TokenAuthenticator> TokenCache<L> {
    /// Caches the results of `authenticator`. The HMAC key comes from the system's random source; there is no fallback,
    /// because a predictable key would let digests be computed outside of this process.
    pub fn new(authenticator: L, ttls: TokenCacheTtls) -> Result<Self, RandomSourceError> {
        let hmac_key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| RandomSourceError)?;
        Ok(Self { authenticator, ttls, hmac_key, cells: TtlCache::with_capacity(CAPACITY) })
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
}

#[async_trait]
impl<L: TokenAuthenticator> TokenAuthenticator for TokenCache<L> {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let digest = self.token_digest(token, audiences);
        let cell = self.cells.get_or_insert_with(digest, VERIFICATION_TIMEOUT, ResultCell::default);
        let authentication = async {
            let timed_out = || Err(AuthenticationErrors::single("the token could not be verified in time"));
            let result =
                tokio::time::timeout(VERIFICATION_TIMEOUT, self.authenticator.authenticate_token(token, audiences))
                    .await;
            let result = result.unwrap_or_else(|_| timed_out());
            // The TTL starts now.
            self.cells.put(digest, cell.clone(), self.ttls.ttl_for(&result));
            result
        };
        cell.get_or_init(|| authentication).await.clone()
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
        for n in 0..2 * CAPACITY {
            cache.cells.put(cache.token_digest(&n.to_string(), &[]), ResultCell::default(), VERIFICATION_TIMEOUT);
        }
        assert!(cache.cells.count_entries() <= CAPACITY);
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
