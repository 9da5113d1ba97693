//! A map of bounded size that drops the entry that was not used for longest, as the caches of client-go's event correlator do.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// A map that holds at most a given number of entries.
pub(crate) struct LruMap<K, V> {
    capacity: usize,
    entries: HashMap<K, (u64, V)>,
    /// The keys in the order of their last use.
    order: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> LruMap<K, V> {
    /// Creates an empty map for `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Returns the value of a key, which is then the last used.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (last, value) = self.entries.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.order.remove(last) {
            self.order.insert(self.uses, key);
        }
        *last = self.uses;
        Some(value)
    }

    /// Returns the value of a key, made by `default` if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, default: impl FnOnce() -> V) -> &mut V {
        if self.get_mut(&key).is_none() {
            self.insert(key.clone(), default());
        }
        &mut self.entries.get_mut(&key).expect("it was found or inserted").1
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        if let Some((last, _)) = self.entries.insert(key, (self.uses, value)) {
            self.order.remove(&last);
        }
        if self.entries.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entry_is_dropped() {
        let mut map = LruMap::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        *map.get_or_insert_with("a", || 0) += 10;
        map.insert("c", 3);
        assert_eq!(["a", "b"].map(|key| map.get_mut(&key).copied()), [Some(11), None]);
        map.insert("c", 4);
        assert_eq!(["a", "c"].map(|key| map.get_mut(&key).copied()), [Some(11), Some(4)]);
        (0..100).for_each(|number| map.insert("c", number));
        assert_eq!((map.entries.len(), map.order.len()), (2, 2));
    }
}
