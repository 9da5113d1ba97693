//! Locks by digest: content that several pulls want at once is fetched and unpacked once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by the digest of blobs and layers.
#[derive(Default)]
pub struct ContentLocks(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

impl ContentLocks {
    /// Waits for the lock of a digest.
    pub async fn lock(&self, digest: &str) -> OwnedMutexGuard<()> {
        self.lock_of(digest).lock_owned().await
    }

    /// Waits for the lock of a digest on a thread that may block.
    pub fn lock_blocking(&self, digest: &str) -> OwnedMutexGuard<()> {
        self.lock_of(digest).blocking_lock_owned()
    }

    fn lock_of(&self, digest: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds or waits for are forgotten.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(digest.to_owned()).or_default().clone()
    }
}
