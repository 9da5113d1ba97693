//! Retries of writes that fail with a conflict.

use std::{slice, time::Duration};

/// Delays of upstream's `retry.DefaultRetry`: few clients write the object.
pub(crate) const DEFAULT_RETRY: &[Duration] = &[Duration::from_millis(10); 4];
/// Delays of upstream's `retry.DefaultBackoff`: other clients may be actively writing the object.
pub(crate) const DEFAULT_BACKOFF: &[Duration] =
    &[Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// The retries of one write.
pub(crate) struct ConflictRetry {
    delays: slice::Iter<'static, Duration>,
}

impl ConflictRetry {
    /// Allows one retry after each of `delays`.
    pub(crate) fn new(delays: &'static [Duration]) -> Self {
        Self { delays: delays.iter() }
    }

    /// Waits before a retry after a failure; returns whether there is one, which only conflicts have.
    pub(crate) async fn wait_for_retry(&mut self, is_conflict: bool) -> bool {
        match self.delays.next().filter(|_| is_conflict) {
            Some(delay) => {
                tokio::time::sleep(*delay).await;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_conflicts_are_retried_and_not_forever() {
        let mut retry = ConflictRetry::new(DEFAULT_BACKOFF);
        assert!(!retry.wait_for_retry(false).await);
        let (mut retry, mut count) = (ConflictRetry::new(DEFAULT_BACKOFF), 0);
        while retry.wait_for_retry(true).await {
            count += 1;
        }
        assert_eq!(count, DEFAULT_BACKOFF.len());
    }
}
