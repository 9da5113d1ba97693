//! Plain limits of concurrent reads and writes without queuing, if priority and fairness is disabled.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RequestDigest;
use crate::Load;

/// Seats for requests in flight; `None` is unlimited.
pub struct Limits {
    reads: Option<Arc<Semaphore>>,
    writes: Option<Arc<Semaphore>>,
}

impl Limits {
    /// Limits according to the configuration; 0 is unlimited.
    pub fn new(load: &Load) -> Self {
        let places = |count: usize| (count > 0).then(|| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))));
        Self { reads: places(load.reads), writes: places(load.writes) }
    }

    /// Returns a seat, to be held until the response is made.
    pub fn admit(&self, asked: &RequestDigest<'_>) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let places = match asked.verb() {
            "watch" => return Ok(None),
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        match places {
            Some(places) => places.clone().try_acquire_owned().map(Some).map_err(drop),
            None => Ok(None),
        }
    }
}
