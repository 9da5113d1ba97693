//! A bound on how many elements an evaluation may look at. Lists and maps share their parts, so that few steps can make a
//! value that is short to write and endless to go over; no cost counts that. Whoever goes over elements burns fuel, and an
//! evaluation that ran out of it fails.

use std::cell::Cell;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Sets how much there is for what this thread does next; how much there was.
pub(crate) fn refill(amount: u64) -> u64 {
    LEFT.replace(amount)
}

/// Whether there was some for one more element.
pub(crate) fn burn() -> bool {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(1));
    left > 0
}

/// Whether there is none left.
pub(crate) fn is_empty() -> bool {
    LEFT.get() == 0
}
