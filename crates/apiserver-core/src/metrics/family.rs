//! Metric families: counters, gauges and histograms by key. Updating a known key costs a shared lock and an addition.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use foldhash::fast::RandomState;

/// Values by key, created on first use.
struct MetricFamily<K, V> {
    /// Clients choose no keys, so a fast hash is safe.
    values: RwLock<HashMap<K, Arc<V>, RandomState>>,
}

impl<K, V> Default for MetricFamily<K, V> {
    fn default() -> Self {
        Self { values: RwLock::default() }
    }
}

impl<K: Clone + Eq + Hash, V> MetricFamily<K, V> {
    fn update(&self, key: &K, make: impl FnOnce() -> V, change: impl FnOnce(&V)) {
        if let Some(value) = self.values.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return change(value);
        }
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        change(values.entry(key.clone()).or_insert_with(|| Arc::new(make())));
    }

    fn collect_values(&self) -> Vec<(K, Arc<V>)> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Counters by key.
pub struct CounterFamily<K>(MetricFamily<K, AtomicU64>);

impl<K> Default for CounterFamily<K> {
    fn default() -> Self {
        Self(MetricFamily::default())
    }
}

impl<K: Clone + Eq + Hash> CounterFamily<K> {
    /// Adds to the counter of a key.
    pub fn add(&self, key: &K, amount: u64) {
        self.0.update(key, AtomicU64::default, |value| {
            value.fetch_add(amount, Ordering::Relaxed);
        });
    }

    /// Returns all values.
    pub fn collect_values(&self) -> Vec<(K, f64)> {
        self.0.collect_values().into_iter().map(|(key, value)| (key, value.load(Ordering::Relaxed) as f64)).collect()
    }
}

/// Gauges by key.
pub struct GaugeFamily<K>(MetricFamily<K, AtomicI64>);

impl<K> Default for GaugeFamily<K> {
    fn default() -> Self {
        Self(MetricFamily::default())
    }
}

impl<K: Clone + Eq + Hash> GaugeFamily<K> {
    /// Adds to the gauge of a key; negative amounts subtract.
    pub fn add(&self, key: &K, amount: i64) {
        self.0.update(key, AtomicI64::default, |value| {
            value.fetch_add(amount, Ordering::Relaxed);
        });
    }

    /// Returns all values.
    pub fn collect_values(&self) -> Vec<(K, f64)> {
        self.0.collect_values().into_iter().map(|(key, value)| (key, value.load(Ordering::Relaxed) as f64)).collect()
    }
}

/// Histograms by key.
pub struct HistogramFamily<K> {
    family: MetricFamily<K, HistogramBuckets>,
    bounds: &'static [f64],
    /// The value of one counted unit.
    unit: f64,
}

struct HistogramBuckets {
    /// One more than there are bounds: the last counts values above all of them.
    counts: Vec<AtomicU64>,
    /// Sum in units.
    sum: AtomicU64,
}

/// The values of a histogram.
pub struct HistogramSnapshot {
    /// Cumulative count per upper bound.
    pub buckets: Vec<(f64, u64)>,
    /// Number of observations.
    pub count: u64,
    /// Sum of observations.
    pub sum: f64,
}

impl<K: Clone + Eq + Hash> HistogramFamily<K> {
    /// Histograms with these upper bounds; observations are in units of `unit`.
    pub fn new(bounds: &'static [f64], unit: f64) -> Self {
        Self { family: MetricFamily::default(), bounds, unit }
    }

    /// Records an observation, in units.
    pub fn observe(&self, key: &K, units: u64) {
        let value = units as f64 * self.unit;
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let make = || HistogramBuckets {
            counts: (0..=self.bounds.len()).map(|_| AtomicU64::default()).collect(),
            sum: AtomicU64::default(),
        };
        self.family.update(key, make, |histogram| {
            histogram.counts[bucket].fetch_add(1, Ordering::Relaxed);
            histogram.sum.fetch_add(units, Ordering::Relaxed);
        });
    }

    /// Returns all histograms.
    pub fn collect_values(&self) -> Vec<(K, HistogramSnapshot)> {
        self.family.collect_values().into_iter().map(|(key, histogram)| (key, self.snapshot(&histogram))).collect()
    }

    fn snapshot(&self, histogram: &HistogramBuckets) -> HistogramSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (at, counter) in histogram.counts.iter().enumerate() {
            count += counter.load(Ordering::Relaxed);
            if let Some(bound) = self.bounds.get(at) {
                buckets.push((*bound, count));
            }
        }
        HistogramSnapshot { buckets, count, sum: histogram.sum.load(Ordering::Relaxed) as f64 * self.unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_fall_into_their_buckets() {
        let histograms = HistogramFamily::new(&[1.0, 10.0], 0.5);
        for units in [1, 2, 3, 100] {
            histograms.observe(&"a", units);
        }
        let (_, snapshot) = histograms.collect_values().remove(0);
        assert_eq!(snapshot.buckets, [(1.0, 2), (10.0, 3)]);
        assert_eq!((snapshot.count, snapshot.sum), (4, 53.0));
    }

    #[test]
    fn keys_are_counted_separately() {
        let counters = CounterFamily::default();
        counters.add(&"a", 2);
        counters.add(&"b", 1);
        counters.add(&"a", 1);
        let mut all = counters.collect_values();
        all.sort_by_key(|(key, _)| *key);
        assert_eq!(all, [("a", 3.0), ("b", 1.0)]);
    }
}
