//! Shared storage of equal values: strings, and everything that pods of one controller have in common.
//!
//! Ten thousand pods of one ReplicaSet share one [`crate::views::pod_info::PodClass`], so that a pod costs what is its own, and
//! results that depend on the class alone are computed once.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// Number of entries below which unused ones are kept.
const MIN_SWEEP: usize = 1024;

/// Values by content. Unused ones are dropped whenever the pool has doubled.
pub struct InternPool<T: ?Sized> {
    entries: Mutex<(HashSet<Arc<T>>, usize)>,
}

impl<T: ?Sized + Eq + Hash> Default for InternPool<T> {
    fn default() -> Self {
        Self { entries: Mutex::new((HashSet::new(), MIN_SWEEP)) }
    }
}

impl<T: Eq + Hash> InternPool<T> {
    /// Returns the shared value that equals `value`.
    pub fn intern(&self, value: T) -> Arc<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = entries.0.get(&value) {
            return shared.clone();
        }
        insert_shared(&mut entries, Arc::new(value))
    }
}

impl InternPool<str> {
    /// Returns the shared string that equals `text`.
    pub fn intern_text(&self, text: &str) -> Arc<str> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = entries.0.get(text) {
            return shared.clone();
        }
        insert_shared(&mut entries, Arc::from(text))
    }
}

fn insert_shared<T: ?Sized + Eq + Hash>(entries: &mut (HashSet<Arc<T>>, usize), shared: Arc<T>) -> Arc<T> {
    let (values, sweep_at) = entries;
    if values.len() >= *sweep_at {
        values.retain(|value| Arc::strong_count(value) > 1);
        *sweep_at = (values.len() * 2).max(MIN_SWEEP);
    }
    values.insert(shared.clone());
    shared
}

/// Returns the process-wide shared string that equals `text`.
pub fn intern(text: &str) -> Arc<str> {
    static STRINGS: LazyLock<InternPool<str>> = LazyLock::new(InternPool::default);
    STRINGS.intern_text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_dropped() {
        let pool = InternPool::<str>::default();
        let kept = pool.intern_text("kept");
        assert!(Arc::ptr_eq(&kept, &pool.intern_text("kept")));
        (0..4 * MIN_SWEEP).for_each(|number| drop(pool.intern_text(&number.to_string())));
        assert!(pool.entries.lock().unwrap().0.len() <= MIN_SWEEP + 1);
        assert!(Arc::ptr_eq(&kept, &pool.intern_text("kept")));
    }
}
