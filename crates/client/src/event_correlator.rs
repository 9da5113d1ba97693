//! Limits of the events that one component writes, as client-go's `EventCorrelator` has them: many similar events become
//! one, and an object has a budget of events.

use std::{collections::HashSet, hash::Hash, time::Duration};

use tokio::time::Instant;

use crate::lru_map::LruMap;

/// Number of different messages from which on similar events are combined.
const MAX_SIMILAR_EVENTS: usize = 10;
/// Time after which similar events are counted anew.
pub(crate) const AGGREGATION: Duration = Duration::from_secs(10 * 60);
/// Number of events about an object that are written at once.
const BURST: u32 = 25;
/// Time after which an object that used up its burst may have another event.
const REFILL: Duration = Duration::from_secs(300);
/// Number of remembered objects and similar events.
pub(crate) const REMEMBERED: usize = 4096;
/// Prefix of the message of combined events.
const COMBINED: &str = "(combined from similar events): ";

/// Counts similar events (`S`: all but the message) and events per object (`O`).
pub(crate) struct EventCorrelator<S, O> {
    similar: LruMap<S, SimilarEvents>,
    budgets: LruMap<O, EventBudget>,
}

struct SimilarEvents {
    messages: HashSet<String>,
    last: Instant,
}

struct EventBudget {
    left: u32,
    /// When `left` was complete.
    refilled: Instant,
}

impl<S: Clone + Eq + Hash, O: Clone + Eq + Hash> EventCorrelator<S, O> {
    pub(crate) fn new() -> Self {
        Self { similar: LruMap::new(REMEMBERED), budgets: LruMap::new(REMEMBERED) }
    }

    /// Returns the message of the event that combines this one with similar ones; `None` if it stands alone.
    pub(crate) fn combine_event(&mut self, similar: S, message: &str) -> Option<String> {
        let now = Instant::now();
        let events = self.similar.get_or_insert_with(similar, || SimilarEvents { messages: HashSet::new(), last: now });
        if events.last.elapsed() > AGGREGATION {
            events.messages.clear();
        }
        events.last = now;
        let is_known = events.messages.contains(message);
        if is_known || events.messages.len() + 1 < MAX_SIMILAR_EVENTS {
            events.messages.insert(message.to_owned());
            return None;
        }
        Some(format!("{COMBINED}{message}"))
    }

    /// Takes an event from the budget of an object; returns whether it may be written.
    pub(crate) fn take_budget(&mut self, object: O) -> bool {
        let now = Instant::now();
        let budget = self.budgets.get_or_insert_with(object, || EventBudget { left: BURST, refilled: now });
        let refills = u32::try_from(budget.refilled.elapsed().as_secs() / REFILL.as_secs()).unwrap_or(BURST);
        budget.left = budget.left.saturating_add(refills).min(BURST);
        budget.refilled = if budget.left == BURST { now } else { budget.refilled + REFILL * refills };
        let may_write = budget.left > 0;
        budget.left = budget.left.saturating_sub(1);
        may_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tenth_different_message_is_combined() {
        let mut correlator = EventCorrelator::<&str, &str>::new();
        for number in 0..9 {
            assert_eq!(correlator.combine_event("a", &number.to_string()), None);
        }
        assert_eq!(correlator.combine_event("a", "9").as_deref(), Some("(combined from similar events): 9"));
        assert_eq!(correlator.combine_event("a", "3"), None);
        assert_eq!(correlator.combine_event("b", "9"), None);
        tokio::time::advance(AGGREGATION + Duration::from_secs(1)).await;
        assert_eq!(correlator.combine_event("a", "9"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn object_has_a_budget_that_refills() {
        let mut correlator = EventCorrelator::<&str, &str>::new();
        assert_eq!((0..40).filter(|_| correlator.take_budget("a")).count(), 25);
        assert!(correlator.take_budget("b"));
        tokio::time::advance(REFILL).await;
        assert!(correlator.take_budget("a") && !correlator.take_budget("a"));
        tokio::time::advance(REFILL * 100).await;
        assert_eq!((0..40).filter(|_| correlator.take_budget("a")).count(), 25);
    }
}
