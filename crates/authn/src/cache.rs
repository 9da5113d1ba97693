//! Remembers what became of tokens, so that a busy client's is verified once in a while only, and once for all of its
//! requests that wait for it. Tokens are kept as keyed digests; how many are kept is bounded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use ring::{hmac, rand::SystemRandom};
use tokio::sync::OnceCell;

use super::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator};

/// How many parts the memory has, so that few wait for each other …
const PARTS: usize = 32;
/// … and how much each remembers, as upstream has it.
const PART_SIZE: usize = 1024;
/// How long a verification may take that others wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long verdicts count.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// That a token is good.
    pub good: Duration,
    /// That nobody knows it.
    pub unknown: Duration,
    /// Whether errors are remembered too, as long as unknown tokens.
    pub errors: bool,
}

impl Lifetimes {
    /// Only good tokens are remembered.
    pub fn of_good(good: Duration) -> Self {
        Self { good, unknown: Duration::ZERO, errors: true }
    }

    fn of(&self, verdict: &AuthenticationResult) -> Duration {
        match verdict {
            Ok(Some(_)) => self.good,
            Ok(None) => self.unknown,
            Err(_) if self.errors => self.unknown,
            Err(_) => Duration::ZERO,
        }
    }
}

type Key = [u8; 32];
/// A verdict and until when it counts.
type Cell = Arc<OnceCell<(AuthenticationResult, Instant)>>;

/// A kind of token, with a memory.
pub struct Cache<L> {
    link: L,
    lifetimes: Lifetimes,
    key: hmac::Key,
    parts: Vec<Mutex<HashMap<Key, Cell>>>,
}

impl<L: TokenAuthenticator> Cache<L> {
    /// Remembers what `link` says.
    pub fn new(link: L, lifetimes: Lifetimes) -> Self {
        let mut random = [0; 32];
        // Without randomness from the kernel the key is still nobody's but this process's.
        if ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut random).is_err() {
            random = std::array::from_fn(|_| fastrand::u8(..));
        }
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Self { link, lifetimes, key: hmac::Key::new(hmac::HMAC_SHA256, &random), parts }
    }

    fn key(&self, token: &str, audiences: &[String]) -> Key {
        let mut digest = hmac::Context::with_key(&self.key);
        for text in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
            // With their lengths, so that texts cannot run into each other.
            digest.update(&text.len().to_be_bytes());
            digest.update(text.as_bytes());
        }
        let mut key = [0; 32];
        key.copy_from_slice(digest.sign().as_ref());
        key
    }

    fn part(&self, key: &Key) -> std::sync::MutexGuard<'_, HashMap<Key, Cell>> {
        self.parts[usize::from(key[0]) % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the verdict is, or will be.
    fn cell(&self, key: Key) -> Cell {
        let now = Instant::now();
        let lives = |cell: &Cell| cell.get().is_none_or(|(_, until)| *until > now);
        let mut part = self.part(&key);
        if let Some(cell) = part.get(&key).filter(|cell| lives(cell)) {
            return cell.clone();
        }
        if part.len() >= PART_SIZE {
            part.retain(|_, cell| lives(cell));
        }
        if part.len() >= PART_SIZE
            && let Some(victim) = part.keys().next().copied()
        {
            part.remove(&victim);
        }
        let cell = Cell::default();
        part.insert(key, cell.clone());
        cell
    }

    fn forget(&self, key: &Key, cell: &Cell) {
        let mut part = self.part(key);
        if part.get(key).is_some_and(|kept| Arc::ptr_eq(kept, cell)) {
            part.remove(key);
        }
    }
}

#[async_trait]
impl<L: TokenAuthenticator> TokenAuthenticator for Cache<L> {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let key = self.key(token, audiences);
        let cell = self.cell(key);
        let verified = async {
            let late = || Err(AuthenticationErrors::one("the token could not be verified in time"));
            let verdict = tokio::time::timeout(PATIENCE, self.link.authenticate_token(token, audiences)).await;
            let verdict = verdict.unwrap_or_else(|_| late());
            let until = Instant::now() + self.lifetimes.of(&verdict);
            (verdict, until)
        };
        let (verdict, until) = cell.get_or_init(|| verified).await;
        if *until <= Instant::now() {
            self.forget(&key, &cell);
        }
        verdict.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apiserver_core::User;

    use super::*;
    use crate::AuthenticationResponse;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    #[async_trait]
    impl TokenAuthenticator for Counting {
        async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            match token {
                "good" => Ok(Some(AuthenticationResponse::user(User { name: "joe".into(), ..User::default() }))),
                "wrong" => Err(AuthenticationErrors::one("wrong")),
                _ => Ok(None),
            }
        }
    }

    /// Asks twice; how often the link was asked.
    async fn check(lifetimes: Lifetimes, token: &str, asked: usize) {
        let cache = Cache::new(Counting::default(), lifetimes);
        let first = cache.authenticate_token(token, &[]).await;
        assert_eq!(cache.authenticate_token(token, &[]).await, first);
        assert_eq!(cache.link.0.load(Ordering::Relaxed), asked, "{token} {lifetimes:?}");
    }

    #[tokio::test]
    async fn verdicts_count_for_a_while() {
        let long = Duration::from_secs(3600);
        let only_good = Lifetimes::of_good(long);
        let all = Lifetimes { good: long, unknown: long, errors: true };
        let no_errors = Lifetimes { errors: false, ..all };
        let none = Lifetimes::of_good(Duration::ZERO);
        for (lifetimes, good, unknown, wrong) in
            [(only_good, 1, 2, 2), (all, 1, 1, 1), (no_errors, 1, 1, 2), (none, 2, 2, 2)]
        {
            check(lifetimes, "good", good).await;
            check(lifetimes, "unknown", unknown).await;
            check(lifetimes, "wrong", wrong).await;
        }
    }

    #[tokio::test]
    async fn audiences_are_told_apart() {
        let cache = Cache::new(Counting::default(), Lifetimes::of_good(Duration::from_secs(3600)));
        for audiences in [vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()], vec!["ab".to_owned()]] {
            assert!(cache.authenticate_token("good", &audiences).await.unwrap().is_some());
        }
        assert_eq!(cache.link.0.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn who_waits_for_the_same_token_waits_once() {
        let cache = Cache::new(Counting::default(), Lifetimes::of_good(Duration::from_secs(3600)));
        futures::future::join_all((0..50).map(|_| cache.authenticate_token("good", &[]))).await;
        assert_eq!(cache.link.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn the_memory_is_bounded() {
        let cache = Cache::new(Counting::default(), Lifetimes { good: PATIENCE, unknown: PATIENCE, errors: true });
        for n in 0..3 * PARTS * PART_SIZE {
            cache.cell(cache.key(&n.to_string(), &[]));
        }
        assert!(cache.parts.iter().all(|part| part.lock().unwrap().len() <= PART_SIZE));
    }
}
