//! Usage between the last two points of each node and container.

use std::collections::BTreeMap;

use formats::quantity::Quantity;
use serde_json::{Value, json};

use super::point::{MetricsBatch, MetricsPoint, PodKey};

/// The age at which the first point of a container is enough: its CPU time since its start.
const FRESH_CONTAINER_NANOS: i64 = 10_000_000_000;

type Containers = BTreeMap<String, MetricsPoint>;

/// The last two points of everything that was scraped.
#[derive(Debug, Default)]
pub struct MetricsStorage {
    last: MetricsBatch,
    previous: MetricsBatch,
}

/// Usage of CPU and memory, and when it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceUsage {
    /// The moment of the last point, in nanoseconds of the Unix epoch.
    pub nanos: i64,
    /// The time between the points in nanoseconds.
    pub window_nanos: i64,
    /// Billionths of a core.
    pub nano_cores: u64,
    /// Working set in bytes.
    pub memory_bytes: u64,
}

impl MetricsStorage {
    /// Stores a scrape. `resolution_nanos` is the time between scrapes.
    pub fn store(&mut self, batch: MetricsBatch, resolution_nanos: i64) {
        let mut previous = MetricsBatch::default();
        for (node, point) in &batch.nodes {
            let kept = preceding_point(point, self.last.nodes.get(node), self.previous.nodes.get(node));
            if let Some(kept) = kept {
                previous.nodes.insert(node.clone(), kept);
            }
        }
        for (pod, containers) in &batch.pods {
            let (last, before) = (self.last.pods.get(pod), self.previous.pods.get(pod));
            let kept: Containers = containers
                .iter()
                .filter_map(|(name, point)| {
                    let of = |points: Option<&Containers>| points.and_then(|points| points.get(name).copied());
                    let kept = first_point(point, resolution_nanos).or_else(|| {
                        let last = of(last).filter(|last| point.start_nanos < last.nanos);
                        preceding_point(point, last.as_ref(), of(before).as_ref())
                    });
                    Some((name.clone(), kept?))
                })
                .collect();
            if !kept.is_empty() {
                previous.pods.insert(pod.clone(), kept);
            }
        }
        (self.last, self.previous) = (batch, previous);
    }

    /// Returns the usage of a node.
    pub fn node_usage(&self, node: &str) -> Option<ResourceUsage> {
        ResourceUsage::between(self.previous.nodes.get(node)?, self.last.nodes.get(node)?)
    }

    /// Returns the usage of a pod's containers; `None` until each has two points.
    pub fn pod_usage(&self, pod: &PodKey) -> Option<Vec<(&str, ResourceUsage)>> {
        let (last, previous) = (self.last.pods.get(pod)?, self.previous.pods.get(pod)?);
        let mut usages = Vec::with_capacity(last.len());
        for (name, point) in last {
            if let Some(usage) = ResourceUsage::between(previous.get(name)?, point) {
                usages.push((name.as_str(), usage));
            }
        }
        Some(usages)
    }
}

/// The zero point of a container that started since the last scrape.
fn first_point(point: &MetricsPoint, resolution_nanos: i64) -> Option<MetricsPoint> {
    let age = point.nanos - point.start_nanos;
    let is_fresh = point.start_nanos > 0 && (FRESH_CONTAINER_NANOS..resolution_nanos).contains(&age);
    is_fresh.then_some(MetricsPoint { nanos: point.start_nanos, cpu_nanos: 0, ..*point })
}

/// The stored point that a new one is compared with.
fn preceding_point(
    new: &MetricsPoint,
    last: Option<&MetricsPoint>,
    previous: Option<&MetricsPoint>,
) -> Option<MetricsPoint> {
    let last = last?;
    if new.nanos > last.nanos { Some(*last) } else { previous.filter(|previous| previous.nanos < new.nanos).copied() }
}

impl ResourceUsage {
    /// `None` if the container restarted or a counter went back.
    fn between(previous: &MetricsPoint, last: &MetricsPoint) -> Option<Self> {
        let window_nanos = last.nanos.checked_sub(previous.nanos).filter(|window| *window > 0)?;
        if last.start_nanos < previous.start_nanos {
            return None;
        }
        let used = last.cpu_nanos.checked_sub(previous.cpu_nanos)?;
        let nano_cores = (used as f64 / (window_nanos as f64 / 1e9)) as u64;
        Some(Self { nanos: last.nanos, window_nanos, nano_cores, memory_bytes: last.memory_bytes })
    }

    /// Returns the ResourceList.
    pub fn resource_list(&self) -> Value {
        json!({ "cpu": cpu_quantity(self.nano_cores), "memory": memory_quantity(self.memory_bytes) })
    }
}

/// Returns the canonical quantity of billionths of a core.
pub fn cpu_quantity(nano_cores: u64) -> String {
    canonical(format!("{nano_cores}n"))
}

/// Returns the canonical quantity of bytes, with binary suffixes.
pub fn memory_quantity(bytes: u64) -> String {
    match bytes % 1024 {
        0 => canonical(format!("{}Ki", bytes / 1024)),
        _ => bytes.to_string(),
    }
}

fn canonical(text: String) -> String {
    Quantity::canonicalize(&text).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn point(start: i64, at: i64, cpu_millis: u64) -> MetricsPoint {
        MetricsPoint {
            start_nanos: start * SECOND,
            nanos: at * SECOND,
            cpu_nanos: cpu_millis * 1_000_000,
            memory_bytes: 2048,
        }
    }

    fn scrape(points: &[(&str, MetricsPoint)]) -> MetricsBatch {
        let containers = points.iter().map(|(name, point)| ((*name).to_owned(), *point)).collect();
        MetricsBatch { nodes: BTreeMap::new(), pods: [(pod(), containers)].into() }
    }

    fn pod() -> PodKey {
        ("ns".into(), "p".into())
    }

    #[test]
    fn usage_is_the_difference_of_two_points() {
        let mut storage = MetricsStorage::default();
        storage.store(scrape(&[("c", point(1, 100, 1000))]), 15 * SECOND);
        assert_eq!(storage.pod_usage(&pod()), None);
        storage.store(scrape(&[("c", point(1, 110, 1500))]), 15 * SECOND);
        let usages = storage.pod_usage(&pod()).unwrap();
        assert_eq!(usages[0].1.resource_list(), json!({ "cpu": "50m", "memory": "2Ki" }));
        assert_eq!(usages[0].1.window_nanos, 10 * SECOND);
        // The same point again keeps the window.
        storage.store(scrape(&[("c", point(1, 110, 1500))]), 15 * SECOND);
        assert_eq!(storage.pod_usage(&pod()).unwrap()[0].1.window_nanos, 10 * SECOND);
    }

    #[test]
    fn restarted_container_has_no_usage_until_it_has_two_points() {
        let mut storage = MetricsStorage::default();
        storage.store(scrape(&[("c", point(1, 100, 1000))]), 15 * SECOND);
        storage.store(scrape(&[("c", point(112, 115, 10))]), 15 * SECOND);
        assert_eq!(storage.pod_usage(&pod()), None);
        storage.store(scrape(&[("c", point(112, 130, 40))]), 15 * SECOND);
        assert_eq!(storage.pod_usage(&pod()).unwrap()[0].1.nano_cores, 2_000_000);
    }

    #[test]
    fn fresh_container_is_measured_from_its_start() {
        let mut storage = MetricsStorage::default();
        storage.store(scrape(&[("c", point(100, 112, 600))]), 15 * SECOND);
        let usage = storage.pod_usage(&pod()).unwrap()[0].1;
        assert_eq!((usage.nano_cores, usage.window_nanos), (50_000_000, 12 * SECOND));
    }

    #[test]
    fn quantities_are_canonical() {
        assert_eq!(cpu_quantity(1_234_567), "1234567n");
        assert_eq!(cpu_quantity(2_000_000_000), "2");
        assert_eq!(memory_quantity(3 << 20), "3Mi");
        assert_eq!(memory_quantity(4097), "4097");
    }
}
