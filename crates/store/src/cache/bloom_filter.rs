//! Bloom filters of labels and selectable fields.
//!
//! The items of a collection lie in memory beside their filters, so that a list with a selector reads only the items that
//! may match.

use std::hash::{BuildHasher, Hash};

/// The labels and selectable fields of a document, or those that a selector requires, two bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectionBloomFilter(u64);

impl SelectionBloomFilter {
    /// Adds a label with its value.
    #[must_use]
    pub fn with_label(self, name: &str, value: &str) -> Self {
        self.with_entry((name, value))
    }

    /// Adds the value of the field at an index of the catalog's list.
    #[must_use]
    pub fn with_field(self, index: usize, value: &str) -> Self {
        self.with_entry((index, value))
    }

    /// Whether a document with this filter may have everything that `required` has. `false` is certain.
    pub fn may_include(self, required: Self) -> bool {
        self.0 & required.0 == required.0
    }

    fn with_entry(self, entry: impl Hash) -> Self {
        let hash = foldhash::fast::FixedState::default().hash_one(entry);
        Self(self.0 | 1 << (hash & 63) | 1 << (hash >> 6 & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_included() {
        let document = SelectionBloomFilter::default().with_label("app", "web").with_field(2, "node-1");
        let required = SelectionBloomFilter::default();
        assert!(document.may_include(required));
        assert!(document.may_include(required.with_label("app", "web")));
        assert!(document.may_include(required.with_field(2, "node-1")));
    }

    #[test]
    fn most_other_values_are_not_included() {
        let document = SelectionBloomFilter::default().with_label("app", "web").with_field(2, "node-1");
        let values = (0..1000).map(|number| number.to_string());
        let included = values.filter(|v| document.may_include(SelectionBloomFilter::default().with_label("app", v)));
        assert!(included.count() < 50);
    }
}
