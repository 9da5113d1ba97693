//! The memory limit of one decoded object.
//!
//! A few bytes can encode many values: `[{},{},…]`, a YAML alias, an empty protobuf message. Every decoder charges its
//! allocations to a [`Budget`] and fails when it is exceeded, so that memory use is a bounded multiple of the input
//! size.

/// Memory limit of an object in bytes: upstream's largest object size, with a margin.
const LIMIT: usize = 40 << 20;
/// Cost of a map's first B-tree node, which has room for eleven entries.
const MAP: usize = 640;
/// Cost of a further map entry: B-tree nodes are at least half full.
const ENTRY: usize = 112;
/// Cost of a list element: a vector's capacity may be twice its length.
const ELEMENT: usize = 64;

/// The memory left for an object.
#[derive(Clone, Debug)]
pub struct Budget {
    left: usize,
}

/// The object exceeds the memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object takes more memory than {} MiB", LIMIT >> 20)]
pub struct Exceeded;

impl Default for Budget {
    fn default() -> Self {
        Self { left: LIMIT }
    }
}

impl Budget {
    /// Creates a quarter of the budget, for objects that are copied while in use.
    pub fn quarter() -> Self {
        Self { left: LIMIT / 4 }
    }

    /// Charges a string of `length` bytes.
    #[inline]
    pub fn text(&mut self, length: usize) -> Result<(), Exceeded> {
        self.take(length)
    }

    /// Charges an entry of a map that has `before` entries, with a key of `key` bytes.
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

    /// Charges a list element.
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
