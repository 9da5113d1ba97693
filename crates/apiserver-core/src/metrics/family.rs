//! Numbers by keys: counters, gauges and histograms. A key that was seen before costs a shared lock and an addition.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

/// Values by keys, made when a key is first seen.
struct Family<K, V> {
    values: RwLock<HashMap<K, Arc<V>>>,
}

impl<K, V> Default for Family<K, V> {
    fn default() -> Self {
        Self { values: RwLock::default() }
    }
}

impl<K: Clone + Eq + Hash, V> Family<K, V> {
    fn with(&self, key: &K, make: impl FnOnce() -> V, change: impl FnOnce(&V)) {
        if let Some(value) = self.values.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return change(value);
        }
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        change(values.entry(key.clone()).or_insert_with(|| Arc::new(make())));
    }

    fn all(&self) -> Vec<(K, Arc<V>)> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Numbers that only grow.
pub struct Counters<K>(Family<K, AtomicU64>);

impl<K> Default for Counters<K> {
    fn default() -> Self {
        Self(Family::default())
    }
}

impl<K: Clone + Eq + Hash> Counters<K> {
    /// Adds.
    pub fn add(&self, key: &K, amount: u64) {
        self.0.with(key, AtomicU64::default, |value| {
            value.fetch_add(amount, Ordering::Relaxed);
        });
    }

    /// All values.
    pub fn all(&self) -> Vec<(K, f64)> {
        self.0.all().into_iter().map(|(key, value)| (key, value.load(Ordering::Relaxed) as f64)).collect()
    }
}

/// Numbers that grow and shrink.
pub struct Gauges<K>(Family<K, AtomicI64>);

impl<K> Default for Gauges<K> {
    fn default() -> Self {
        Self(Family::default())
    }
}

impl<K: Clone + Eq + Hash> Gauges<K> {
    /// Adds, or takes away.
    pub fn add(&self, key: &K, amount: i64) {
        self.0.with(key, AtomicI64::default, |value| {
            value.fetch_add(amount, Ordering::Relaxed);
        });
    }

    /// All values.
    pub fn all(&self) -> Vec<(K, f64)> {
        self.0.all().into_iter().map(|(key, value)| (key, value.load(Ordering::Relaxed) as f64)).collect()
    }
}

/// How often values were how large.
pub struct Histograms<K> {
    family: Family<K, Histogram>,
    bounds: &'static [f64],
    /// What one counted unit is worth.
    unit: f64,
}

struct Histogram {
    /// One more than there are bounds: the last is for what is above all of them.
    counts: Vec<AtomicU64>,
    /// In units.
    sum: AtomicU64,
}

/// The state of a histogram when somebody asks.
pub struct Seen {
    /// How many values were at most each bound.
    pub up_to: Vec<(f64, u64)>,
    /// How many values there were.
    pub count: u64,
    /// All values together.
    pub sum: f64,
}

impl<K: Clone + Eq + Hash> Histograms<K> {
    /// With these bounds, counted in units of that worth.
    pub fn new(bounds: &'static [f64], unit: f64) -> Self {
        Self { family: Family::default(), bounds, unit }
    }

    /// Notes a value, in units.
    pub fn note(&self, key: &K, units: u64) {
        let value = units as f64 * self.unit;
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let make = || Histogram {
            counts: (0..=self.bounds.len()).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
        };
        self.family.with(key, make, |histogram| {
            histogram.counts[bucket].fetch_add(1, Ordering::Relaxed);
            histogram.sum.fetch_add(units, Ordering::Relaxed);
        });
    }

    /// All values.
    pub fn all(&self) -> Vec<(K, Seen)> {
        self.family.all().into_iter().map(|(key, histogram)| (key, self.seen(&histogram))).collect()
    }

    fn seen(&self, histogram: &Histogram) -> Seen {
        let mut count = 0;
        let mut up_to = Vec::with_capacity(self.bounds.len());
        for (at, bucket) in histogram.counts.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            if let Some(bound) = self.bounds.get(at) {
                up_to.push((*bound, count));
            }
        }
        Seen { up_to, count, sum: histogram.sum.load(Ordering::Relaxed) as f64 * self.unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_under_their_bounds() {
        let histograms = Histograms::new(&[1.0, 10.0], 0.5);
        for units in [1, 2, 3, 100] {
            histograms.note(&"a", units);
        }
        let (_, seen) = histograms.all().remove(0);
        assert_eq!(seen.up_to, [(1.0, 2), (10.0, 3)]);
        assert_eq!((seen.count, seen.sum), (4, 53.0));
    }

    #[test]
    fn keys_have_their_own_numbers() {
        let counters = Counters::default();
        counters.add(&"a", 2);
        counters.add(&"b", 1);
        counters.add(&"a", 1);
        let mut all = counters.all();
        all.sort_by_key(|(key, _)| *key);
        assert_eq!(all, [("a", 3.0), ("b", 1.0)]);
    }
}
