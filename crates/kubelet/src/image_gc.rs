//! Image garbage collection: unused images are removed when the disk fills up, the least recently used first.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use runtime::cri::{CriError, types::Image};
use tokio::sync::Mutex;

use crate::{blocking::run_blocking, context::KubeletContext, settings::ImageGcSettings};

/// Interval between collections.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(300);

/// When an image was first and last seen in use.
#[derive(Clone, Copy, Debug)]
struct ImageRecord {
    first_detected: Instant,
    last_used: Option<Instant>,
}

/// Removes unused images.
pub struct ImageGarbageCollector {
    kubelet: Arc<KubeletContext>,
    /// A path on the file system of images.
    image_dir: PathBuf,
    records: Mutex<HashMap<String, ImageRecord>>,
}

impl ImageGarbageCollector {
    /// Creates a collector; `image_dir` is on the file system of images.
    pub fn new(kubelet: Arc<KubeletContext>, image_dir: PathBuf) -> Self {
        Self { kubelet, image_dir, records: Mutex::default() }
    }

    /// Collects at an interval for ever.
    pub async fn run(&self) {
        loop {
            if let Err(error) = self.collect_garbage().await {
                tracing::warn!(%error, "kubelet: image garbage collection failed, retrying");
            }
            tokio::time::sleep(COLLECTION_INTERVAL).await;
        }
    }

    /// Removes images that are too old, and others while the disk is fuller than it may be.
    async fn collect_garbage(&self) -> Result<(), CriError> {
        let settings = self.kubelet.settings.image_gc;
        let mut unused = self.detect_unused_images().await?;
        let now = Instant::now();
        if !settings.maximum_age.is_zero() {
            let is_old = |record: &ImageRecord| {
                now.duration_since(record.last_used.unwrap_or(record.first_detected)) > settings.maximum_age
            };
            let (old, rest) = unused.into_iter().partition(|(_, record)| is_old(record));
            self.remove_images(old, u64::MAX, Duration::ZERO).await;
            unused = rest;
        }
        let dir = self.image_dir.clone();
        let Ok(stat) = run_blocking(move || rustix::fs::statvfs(&dir)).await else { return Ok(()) };
        // As `df` counts: without what only root may use.
        let usable = stat.f_blocks.saturating_sub(stat.f_bfree) + stat.f_bavail;
        let (capacity, available) = (usable * stat.f_frsize, stat.f_bavail * stat.f_frsize);
        let wanted = bytes_to_free(settings, capacity, available);
        if wanted == 0 {
            return Ok(());
        }
        tracing::info!(wanted, "kubelet: disk usage over the threshold, removing unused images");
        let freed = self.remove_images(unused, wanted, settings.minimum_age).await;
        if freed < wanted {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found {freed} bytes eligible to free."
            );
            let node = self.kubelet.node_reference();
            self.kubelet.recorder.record_warning(node, "FreeDiskSpaceFailed", message);
        }
        Ok(())
    }

    /// Removes all unused images, however young.
    pub async fn delete_unused_images(&self) {
        match self.detect_unused_images().await {
            Ok(unused) => drop(self.remove_images(unused, u64::MAX, Duration::ZERO).await),
            Err(error) => tracing::warn!(%error, "kubelet: unused images not found"),
        }
    }

    /// Notes which images exist and which are in use; returns the others, the least recently used first.
    async fn detect_unused_images(&self) -> Result<Vec<(Image, ImageRecord)>, CriError> {
        let (images, containers) =
            tokio::try_join!(self.kubelet.cri.list_images(), self.kubelet.cri.list_containers(HashMap::new()))?;
        let mut used: HashSet<String> = HashSet::new();
        for container in containers {
            used.insert(container.image_ref);
            used.insert(container.image_id);
            used.extend(container.image.map(|image| image.image));
        }
        let now = Instant::now();
        let mut records = self.records.lock().await;
        records.retain(|id, _| images.iter().any(|image| image.id == *id));
        let mut unused = Vec::new();
        for image in images {
            let record =
                records.entry(image.id.clone()).or_insert(ImageRecord { first_detected: now, last_used: None });
            let mut names = std::iter::once(&image.id).chain(&image.repo_digests).chain(&image.repo_tags);
            if image.pinned || names.any(|name| used.contains(name)) {
                record.last_used = Some(now);
            } else {
                unused.push((image, *record));
            }
        }
        unused.sort_by_key(|(_, record)| (record.last_used, record.first_detected));
        Ok(unused)
    }

    /// Removes images until `wanted` bytes are free; returns the bytes.
    async fn remove_images(&self, images: Vec<(Image, ImageRecord)>, wanted: u64, minimum_age: Duration) -> u64 {
        let mut freed = 0;
        for (image, record) in images {
            if freed >= wanted {
                break;
            }
            if record.first_detected.elapsed() < minimum_age {
                continue;
            }
            match self.kubelet.cri.remove_image(&image.id).await {
                Ok(()) => {
                    tracing::info!(image = image.id, size = image.size, "kubelet: unused image removed");
                    self.records.lock().await.remove(&image.id);
                    freed = freed.saturating_add(image.size);
                }
                Err(error) => tracing::warn!(image = image.id, %error, "kubelet: image not removed"),
            }
        }
        freed
    }
}

/// Returns how many bytes must be freed to come from over the high threshold down to the low one.
fn bytes_to_free(settings: ImageGcSettings, capacity: u64, available: u64) -> u64 {
    if capacity == 0 || settings.high_threshold_percent >= 100 {
        return 0;
    }
    let used_percent = 100 - (available.min(capacity) as u128 * 100 / u128::from(capacity)) as u64;
    if used_percent < settings.high_threshold_percent {
        return 0;
    }
    let keep_free = (u128::from(capacity) * u128::from(100 - settings.low_threshold_percent) / 100) as u64;
    keep_free.saturating_sub(available)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_removed_between_the_thresholds() {
        let free = |available| bytes_to_free(ImageGcSettings::default(), 1000, available);
        assert_eq!([free(500), free(160), free(150), free(100), free(0)], [0, 0, 50, 100, 200]);
        let never = ImageGcSettings { high_threshold_percent: 100, ..Default::default() };
        assert_eq!((bytes_to_free(never, 1000, 0), free(2000)), (0, 0));
    }
}
