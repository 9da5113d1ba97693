//! Sheds load: at most so many requests are worked on at once; the others are told to come back, not kept waiting.
//!
//! Watches and streams last long and cost little, so they do not count; neither do components of this process.

use std::sync::Arc;

use api::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{request::Target, streams};

/// Reads at once, as upstream's `--max-requests-inflight`.
const READS: usize = 400;
/// Writes at once, as upstream's `--max-mutating-requests-inflight`.
const WRITES: usize = 200;

/// The places for requests in flight.
pub struct Limits {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reads: Arc::new(Semaphore::new(READS)), writes: Arc::new(Semaphore::new(WRITES)) }
    }
}

impl Limits {
    /// A place for a request, to be held until its answer is made; 429 when there is none.
    pub fn admit(&self, target: &Target) -> Result<Option<OwnedSemaphorePermit>, Status> {
        let places = match target.verb {
            "watch" => return Ok(None),
            _ if streams::answers(&target.subresource) => return Ok(None),
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        places.clone().try_acquire_owned().map(Some).map_err(|_| Status::too_many_requests())
    }
}
