//! Sheds load: at most so many requests are worked on at once; the others are told to come back, not kept waiting.
//!
//! Watches and streams last long and cost little, so they do not count; neither do components of this process.

use std::sync::Arc;

use api::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Load, request::Target, streams};

/// The places for requests in flight.
pub struct Limits {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Limits {
    /// As many places as the settings say.
    pub fn new(load: &Load) -> Self {
        Self { reads: Arc::new(Semaphore::new(load.reads)), writes: Arc::new(Semaphore::new(load.writes)) }
    }

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
