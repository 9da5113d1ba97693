//! The fence of a leader: its writes are refused from the moment on at which another candidate may hold the lease.
//!
//! A leader that loses the lease is told to stop, but a process that was paused, or a runtime that was starved, goes on where it
//! stopped before it is told. The fence needs no task of its own: it compares the clock with the lease's end at every write.
//!
//! # Guarantees
//! - A guarded client sends no write later than the lease duration after the last renewal was *sent*, which is earlier than
//!   any other candidate takes the lease over.
//! - Reads and watches pass always.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Client, client::Body};
use tokio::time::Instant;
use tower::BoxError;

/// The end of a candidate's lease. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LeaderFence {
    open_until: Arc<Mutex<Option<Instant>>>,
}

/// A write of a candidate that does not hold the lease.
#[derive(Debug, thiserror::Error)]
#[error("not the leader: the lease is not held, the write was not sent")]
pub struct NotLeaderError;

impl LeaderFence {
    /// Returns a client that has the credentials of `client` and writes only while the lease is held.
    pub fn guard(&self, client: Client) -> Client {
        let fence = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let passes = request.method().is_safe() || fence.is_open();
            let client = client.clone();
            async move {
                match passes {
                    true => Ok::<_, BoxError>(client.send(request).await?),
                    false => Err(NotLeaderError.into()),
                }
            }
        });
        Client::new(service, "default")
    }

    /// Whether writes pass.
    pub fn is_open(&self) -> bool {
        let open_until = *self.open_until.lock().unwrap_or_else(PoisonError::into_inner);
        open_until.is_some_and(|end| Instant::now() < end)
    }

    /// Returns the time for which the lease has been over although the candidate has not stopped leading.
    pub fn overdue(&self) -> Option<Duration> {
        let open_until = *self.open_until.lock().unwrap_or_else(PoisonError::into_inner);
        Instant::now().checked_duration_since(open_until?)
    }

    /// Lets writes pass until `end`.
    pub(crate) fn open_until(&self, end: Instant) {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Refuses writes from now on.
    pub(crate) fn close(&self) {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lease_that_ended_is_overdue_until_the_fence_closes() {
        let fence = LeaderFence::default();
        assert_eq!((fence.is_open(), fence.overdue()), (false, None));
        fence.open_until(Instant::now() + Duration::from_secs(5));
        assert_eq!((fence.is_open(), fence.overdue()), (true, None));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!((fence.is_open(), fence.overdue()), (false, Some(Duration::from_secs(25))));
        fence.close();
        assert_eq!(fence.overdue(), None);
    }
}
