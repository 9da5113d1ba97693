//! A limit on the number of elements that an evaluation may traverse. Lists and maps share their parts, so a few steps
//! can build a value that is small in memory and exponentially large to traverse, which the cost model does not cover.
//! Each traversed element burns fuel, and an evaluation without fuel fails.

use std::cell::Cell;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Sets this thread's fuel and returns the previous amount.
pub(crate) fn set_fuel(amount: u64) -> u64 {
    LEFT.replace(amount)
}

/// Consumes fuel for one element; `false` if there is none left.
pub(crate) fn consume_fuel() -> bool {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(1));
    left > 0
}

/// Whether the fuel is used up.
pub(crate) fn is_empty() -> bool {
    LEFT.get() == 0
}
