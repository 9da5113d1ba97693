//! Events go away by themselves.

use super::Strategy;

/// The strategy of events.
pub struct Event;

impl Strategy for Event {
    fn is_ephemeral(&self) -> bool {
        true
    }
}
