//! Back-off of the deletion of failed daemon pods, which a kubelet may reject again and again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// Delays per DaemonSet, generation and node.
#[derive(Default)]
pub(super) struct FailedPodsBackoff {
    entries: Mutex<HashMap<String, BackoffEntry>>,
}

struct BackoffEntry {
    delay: Duration,
    updated_at: Instant,
}

impl BackoffEntry {
    /// Whether the node has been quiet long enough to begin anew.
    fn is_expired(&self) -> bool {
        self.updated_at.elapsed() > MAX_BACKOFF * 2
    }
}

impl FailedPodsBackoff {
    /// Allows a deletion now and lengthens the next delay, or returns the delay to wait for.
    pub(super) fn try_delete(&self, key: String) -> Result<(), Duration> {
        let mut entries = self.lock_entries();
        let delay = match entries.get(&key).filter(|entry| !entry.is_expired()) {
            Some(entry) if entry.updated_at.elapsed() < entry.delay => return Err(entry.delay),
            Some(entry) => (entry.delay * 2).min(MAX_BACKOFF),
            None => INITIAL_BACKOFF,
        };
        entries.retain(|_, entry| !entry.is_expired());
        entries.insert(key, BackoffEntry { delay, updated_at: Instant::now() });
        Ok(())
    }

    fn lock_entries(&self) -> MutexGuard<'_, HashMap<String, BackoffEntry>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delay_doubles_and_expires() {
        let backoff = FailedPodsBackoff::default();
        let check = |expected: Result<(), u64>| {
            assert_eq!(backoff.try_delete("a".into()), expected.map_err(Duration::from_secs));
        };
        check(Ok(()));
        check(Err(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        check(Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        check(Err(2));
        tokio::time::advance(MAX_BACKOFF * 3).await;
        check(Ok(()));
        check(Err(1));
    }
}
