//! Events expire after a TTL.

use super::Strategy;

/// The strategy of events.
pub struct EventStrategy;

impl Strategy for EventStrategy {
    fn is_ephemeral(&self) -> bool {
        true
    }
}
