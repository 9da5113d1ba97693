//! Plain limits of concurrent reads and writes without queuing, if priority and fairness is disabled.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RequestDigest;
use crate::FlowControlOptions;

/// Seats for requests in flight; `None` is unlimited.
pub struct MaxInFlightLimits {
    reads: Option<Arc<Semaphore>>,
    writes: Option<Arc<Semaphore>>,
}

impl MaxInFlightLimits {
    /// Limits according to the configuration; 0 is unlimited.
    pub fn new(load: &FlowControlOptions) -> Self {
        let semaphore = |count: usize| (count > 0).then(|| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))));
        Self { reads: semaphore(load.reads), writes: semaphore(load.writes) }
    }

    /// Returns a seat, to be held until the response is made.
    pub fn admit_request(&self, digest: &RequestDigest<'_>) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let semaphore = match digest.verb() {
            "watch" => return Ok(None),
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        match semaphore {
            Some(semaphore) => semaphore.clone().try_acquire_owned().map(Some).map_err(drop),
            None => Ok(None),
        }
    }
}
