//! Events live for an hour.

use std::time::Duration;

use super::Strategy;

/// The strategy of events.
pub struct Event;

impl Strategy for Event {
    fn ttl(&self) -> Option<Duration> {
        Some(Duration::from_secs(3600))
    }
}
