//! Lookups that synchronous code needs and asynchronous code resolves.
//!
//! CEL expressions and server-side apply do not wait, but may need an authorization decision or a conversion webhook. They
//! record a lookup whose result is unknown and continue with a default; the result of that attempt is discarded. The lookups are
//! then resolved and the work runs again. Each lookup is resolved once.
//!
//! Invariant: the work has no side effects, and is called again with the same inputs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lookups of one request, with the results that are known.
#[derive(Debug)]
pub struct DeferredLookups<K, V> {
    entries: Mutex<Vec<(K, Option<V>)>>,
}

impl<K, V> Default for DeferredLookups<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<K: Clone, V: Clone> DeferredLookups<K, V> {
    /// Returns the result of the lookup that `matches`; records `key` and returns `None` if it is not known yet.
    pub fn get_or_record(&self, matches: impl Fn(&K) -> bool, key: impl FnOnce() -> K) -> Option<V> {
        let mut entries = self.lock();
        match entries.iter().find(|(known, _)| matches(known)) {
            Some((_, result)) => result.clone(),
            None => {
                entries.push((key(), None));
                None
            }
        }
    }

    /// Returns the lookups that are recorded and not resolved; none: the last attempt of the work is valid.
    pub fn unresolved(&self) -> Vec<K> {
        self.lock().iter().filter(|(_, result)| result.is_none()).map(|(key, _)| key.clone()).collect()
    }

    /// Stores the results of [`Self::unresolved`], in the same order.
    pub fn resolve(&self, results: Vec<V>) {
        let mut entries = self.lock();
        let unresolved = entries.iter_mut().filter(|(_, result)| result.is_none());
        unresolved.zip(results).for_each(|((_, result), resolved)| *result = Some(resolved));
    }

    /// Returns the first result that `select` picks.
    pub fn find_result<T>(&self, select: impl Fn(&V) -> Option<T>) -> Option<T> {
        self.lock().iter().find_map(|(_, result)| select(result.as_ref()?))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(K, Option<V>)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_again_until_its_lookups_are_resolved() {
        let lookups = DeferredLookups::<u32, u32>::default();
        let double = |key: u32| lookups.get_or_record(|known| *known == key, || key).unwrap_or_default();
        let work = || if double(1) == 0 { 0 } else { double(1) + double(2) };
        assert_eq!((work(), lookups.unresolved()), (0, vec![1]));
        lookups.resolve(vec![2]);
        assert_eq!((work(), lookups.unresolved()), (2, vec![2]));
        lookups.resolve(vec![4]);
        assert_eq!((work(), lookups.unresolved()), (6, vec![]));
    }
}
