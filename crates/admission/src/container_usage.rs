//! Container resource usage by image: samples that are read from the kubelets every minute while an enabled plug-in
//! needs them, and kept in memory for a month. InitialResources estimates the requests of new containers from them.
//!
//! Memory is bounded by a maximum of samples per image and namespace and a maximum of series; the oldest are dropped
//! first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of samples of one image in one namespace.
const MAX_SAMPLES: usize = 2_000;
/// Maximum number of series: image and namespace pairs.
const MAX_SERIES: usize = 4_096;
/// Maximum age of a sample.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The measured compute resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeResource {
    /// CPU in millicores.
    Cpu,
    /// Memory in bytes.
    Memory,
}

/// One usage sample of a container. A value that is not known yet is `None`.
#[derive(Clone, Copy, Debug)]
pub struct UsageSample {
    /// The time of the sample.
    pub at: Instant,
    /// CPU in millicores.
    pub cpu: Option<u64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
}

/// A query for samples.
#[derive(Clone, Copy, Debug)]
pub struct UsageQuery<'a> {
    /// The image, with its tag if `exact` is set.
    pub image: &'a str,
    /// Whether the tag must match.
    pub exact: bool,
    /// The namespace; `None` selects all.
    pub namespace: Option<&'a str>,
    /// The maximum age of the samples.
    pub within: Duration,
}

/// All recorded samples.
#[derive(Default)]
pub struct ContainerUsage(Mutex<HashMap<SeriesKey, VecDeque<UsageSample>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeriesKey {
    namespace: String,
    image: String,
}

impl ContainerUsage {
    /// Records a sample.
    pub fn record_sample(&self, namespace: &str, image: &str, sample: UsageSample) {
        let mut all = self.lock();
        let series = SeriesKey { namespace: namespace.to_owned(), image: image.to_owned() };
        if all.len() >= MAX_SERIES && !all.contains_key(&series) {
            let newest = |samples: &VecDeque<UsageSample>| samples.back().map(|sample| sample.at);
            let oldest = all.iter().min_by_key(|(_, samples)| newest(samples)).map(|(series, _)| series.clone());
            oldest.map(|oldest| all.remove(&oldest));
        }
        let samples = all.entry(series).or_default();
        let old = |first: &UsageSample| sample.at.saturating_duration_since(first.at) > MAX_SAMPLE_AGE;
        while samples.len() >= MAX_SAMPLES || samples.front().is_some_and(old) {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The usage at a percentile and the number of samples; `None` without samples.
    pub fn percentile(
        &self,
        kind: ComputeResource,
        percent: u64,
        wanted: UsageQuery<'_>,
        now: Instant,
    ) -> Option<(u64, usize)> {
        let all = self.lock();
        let chosen = all.iter().filter(|(series, _)| wanted.matches_series(series)).flat_map(|(_, samples)| samples);
        let recent = chosen.filter(|sample| now.saturating_duration_since(sample.at) <= wanted.within);
        let value = |sample: &UsageSample| match kind {
            ComputeResource::Cpu => sample.cpu,
            ComputeResource::Memory => sample.memory,
        };
        let mut values: Vec<u64> = recent.filter_map(value).collect();
        values.sort_unstable();
        let at = (values.len() * usize::try_from(percent).unwrap_or(100)).div_ceil(100).max(1) - 1;
        values.get(at.min(values.len().checked_sub(1)?)).map(|value| (*value, values.len()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SeriesKey, VecDeque<UsageSample>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsageQuery<'_> {
    fn matches_series(&self, series: &SeriesKey) -> bool {
        let image = if self.exact { series.image.as_str() } else { strip_image_tag(&series.image) };
        image == self.image && self.namespace.is_none_or(|namespace| namespace == series.namespace)
    }
}

/// Strips the tag or digest of an image reference; a registry port is kept.
pub fn strip_image_tag(image: &str) -> &str {
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    image[name..].find([':', '@']).map_or(image, |end| &image[..name + end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_tag_and_digest_are_stripped() {
        for (image, want) in [
            ("nginx", "nginx"),
            ("nginx:1", "nginx"),
            ("r:5000/a/b", "r:5000/a/b"),
            ("r:5000/a:1", "r:5000/a"),
            ("a@sha256:1", "a"),
        ] {
            assert_eq!(strip_image_tag(image), want);
        }
    }

    #[test]
    fn percentile_counts_only_matching_samples() {
        let (usage, now) = (ContainerUsage::default(), Instant::now());
        for value in 1..=100 {
            usage.record_sample("a", "i:1", UsageSample { at: now, cpu: Some(value), memory: None });
        }
        usage.record_sample("b", "i:2", UsageSample { at: now, cpu: Some(1000), memory: Some(7) });
        let wanted = |image, exact, namespace| UsageQuery { image, exact, namespace, within: MAX_SAMPLE_AGE };
        let check = |kind, percent, wanted, want| assert_eq!(usage.percentile(kind, percent, wanted, now), want);
        check(ComputeResource::Cpu, 90, wanted("i:1", true, Some("a")), Some((90, 100)));
        check(ComputeResource::Cpu, 100, wanted("i:1", true, Some("a")), Some((100, 100)));
        check(ComputeResource::Cpu, 0, wanted("i:1", true, None), Some((1, 100)));
        check(ComputeResource::Cpu, 100, wanted("i", false, None), Some((1000, 101)));
        check(ComputeResource::Memory, 90, wanted("i:1", true, None), None);
        check(ComputeResource::Memory, 90, wanted("i", false, None), Some((7, 1)));
        check(ComputeResource::Cpu, 90, wanted("i:1", true, Some("b")), None);
        check(ComputeResource::Cpu, 90, wanted("j", false, None), None);
        let later = now + MAX_SAMPLE_AGE + Duration::from_secs(1);
        assert_eq!(usage.percentile(ComputeResource::Cpu, 90, wanted("i", false, None), later), None);
    }

    #[test]
    fn samples_and_series_are_bounded() {
        let (usage, now) = (ContainerUsage::default(), Instant::now());
        for at in 0..MAX_SERIES + 5 {
            usage.record_sample("a", &at.to_string(), UsageSample { at: now, cpu: Some(1), memory: None });
        }
        for _ in 0..MAX_SAMPLES + 5 {
            usage.record_sample("a", "busy", UsageSample { at: now, cpu: Some(1), memory: None });
        }
        let all = usage.lock();
        assert_eq!(all.len(), MAX_SERIES);
        assert!(all.values().all(|samples| samples.len() <= MAX_SAMPLES));
    }
}
