//! How much memory one decoded object may take.
//!
//! Few bytes can stand for many values: `[{},{},…]`, a YAML alias, an empty protobuf message. Every decoder charges what it
//! makes to a [`Budget`] and stops when it is spent, so that what a client sends costs a bounded multiple of its size.

/// What an object may take, in bytes: an object of upstream's largest size with room to spare.
const LIMIT: usize = 40 << 20;
/// A node of a map holds eleven entries, whether they are used or not.
const MAP: usize = 640;
/// A map is at least half full beyond its first node.
const ENTRY: usize = 112;
/// A list may have twice the room that it uses.
const ELEMENT: usize = 64;

/// The memory that is left for an object.
#[derive(Clone, Debug)]
pub struct Budget {
    left: usize,
}

/// The object would take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object takes more memory than {} MiB", LIMIT >> 20)]
pub struct Exceeded;

impl Default for Budget {
    fn default() -> Self {
        Self { left: LIMIT }
    }
}

impl Budget {
    /// For what is copied while it is used.
    pub fn quarter() -> Self {
        Self { left: LIMIT / 4 }
    }

    /// A text of so many bytes.
    #[inline]
    pub fn text(&mut self, length: usize) -> Result<(), Exceeded> {
        self.take(length)
    }

    /// An entry of a map that has `before` entries, with a key of so many bytes.
    #[inline]
    pub fn entry(&mut self, before: usize, key: usize) -> Result<(), Exceeded> {
        self.take(
            key + if before == 0 {
                MAP
            } else if before < 11 {
                0
            } else {
                ENTRY
            },
        )
    }

    /// An element of a list.
    #[inline]
    pub fn element(&mut self) -> Result<(), Exceeded> {
        self.take(ELEMENT)
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.left = self.left.checked_sub(bytes).ok_or(Exceeded)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_once() {
        let mut budget = Budget::default();
        budget.text(LIMIT - ELEMENT).unwrap();
        budget.element().unwrap();
        assert_eq!(budget.text(1), Err(Exceeded));
    }
}
