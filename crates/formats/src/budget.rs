//! The memory limit of one decoded object.
//!
//! A few bytes can encode many values: `[{},{},…]`, a YAML alias, an empty protobuf message. Every decoder charges its
//! allocations to a [`MemoryBudget`] and fails when it is exceeded, so that memory use is a bounded multiple of the input
//! size.

/// Memory limit of an object in bytes: upstream's largest object size, with a margin.
const MEMORY_LIMIT: usize = 40 << 20;
/// Cost of a map's first B-tree node, which has room for eleven entries.
const MAP_COST: usize = 640;
/// Cost of a further map entry: B-tree nodes are at least half full.
const MAP_ENTRY_COST: usize = 112;
/// Cost of a list element: a vector's capacity may be twice its length.
const LIST_ELEMENT_COST: usize = 64;

/// The memory left for an object.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    left: usize,
}

/// The object exceeds the memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object takes more memory than {} MiB", MEMORY_LIMIT >> 20)]
pub struct OverBudget;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { left: MEMORY_LIMIT }
    }
}

impl MemoryBudget {
    /// Creates a quarter of the budget, for objects that are copied while in use.
    pub fn with_quarter() -> Self {
        Self { left: MEMORY_LIMIT / 4 }
    }

    /// Charges a string of `length` bytes.
    #[inline]
    pub fn charge_string(&mut self, length: usize) -> Result<(), OverBudget> {
        self.charge_bytes(length)
    }

    /// Charges an entry of a map that has `before` entries, with a key of `key` bytes.
    #[inline]
    pub fn charge_map_entry(&mut self, before: usize, key: usize) -> Result<(), OverBudget> {
        self.charge_bytes(
            key + if before == 0 {
                MAP_COST
            } else if before < 11 {
                0
            } else {
                MAP_ENTRY_COST
            },
        )
    }

    /// Charges a list element.
    #[inline]
    pub fn charge_list_element(&mut self) -> Result<(), OverBudget> {
        self.charge_bytes(LIST_ELEMENT_COST)
    }

    #[inline]
    fn charge_bytes(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.left = self.left.checked_sub(bytes).ok_or(OverBudget)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_rejected_once_the_budget_is_spent() {
        let mut budget = MemoryBudget::default();
        budget.charge_string(MEMORY_LIMIT - LIST_ELEMENT_COST).unwrap();
        budget.charge_list_element().unwrap();
        assert_eq!(budget.charge_string(1), Err(OverBudget));
    }
}
