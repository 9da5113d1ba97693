//! The two plain limits, for who turns priority and fairness off: so many reads and so many writes at once, and nobody
//! waits.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RequestDigest;
use crate::Load;

/// The places for requests in flight; `None`: no limit.
pub struct Limits {
    reads: Option<Arc<Semaphore>>,
    writes: Option<Arc<Semaphore>>,
}

impl Limits {
    /// As many places as the settings say; 0 is no limit.
    pub fn new(load: &Load) -> Self {
        let places = |count: usize| (count > 0).then(|| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))));
        Self { reads: places(load.reads), writes: places(load.writes) }
    }

    /// A place for a request, to be held until its answer is made.
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
