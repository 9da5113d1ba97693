//! Measures the node's resources, and what pods use of them.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt, path::Path};

use k8s_openapi::api::core::v1::Pod;
use runtime::cri::types::ContainerStats;

use crate::{
    context::{KubeletContext, pod_uid},
    eviction_thresholds::{EvictionSignal, Observation, Observations},
    resource_metrics::NodeUsage,
    runtime_status::labels,
    volumes::PodDir,
};

/// The resources that a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// Memory of each container by name, in bytes.
    pub memory: HashMap<String, i64>,
    /// Bytes on disk of each container by name: its layer and its logs.
    pub disk: HashMap<String, i64>,
    /// Bytes of the emptyDir volumes on disk, by volume.
    pub empty_dirs: HashMap<String, i64>,
}

impl PodUsage {
    /// Returns the memory of the pod.
    pub fn total_memory(&self) -> i64 {
        self.memory.values().sum()
    }

    /// Returns the bytes on disk of the pod.
    pub fn total_disk(&self) -> i64 {
        self.disk.values().chain(self.empty_dirs.values()).sum()
    }
}

/// Measures the node. Blocks.
pub fn observe_node(root_dir: &Path, image_dir: &Path, memory_capacity: i64) -> Observations {
    let mut observations = Observations::new();
    if let Ok(usage) = NodeUsage::read() {
        let available = memory_capacity.saturating_sub(usage.memory as i64);
        observations.insert(EvictionSignal::MemoryAvailable, Observation { available, capacity: memory_capacity });
    }
    let file_systems = [
        (root_dir, EvictionSignal::NodeFsAvailable, EvictionSignal::NodeFsInodesFree),
        (image_dir, EvictionSignal::ImageFsAvailable, EvictionSignal::ImageFsInodesFree),
    ];
    for (path, bytes, inodes) in file_systems {
        let Ok(stat) = rustix::fs::statvfs(path) else { continue };
        let block = stat.f_frsize as i64;
        // What only root may use, or what a quota holds back, is no capacity: `df` counts the same way.
        let usable = stat.f_blocks.saturating_sub(stat.f_bfree) + stat.f_bavail;
        let space = Observation { available: stat.f_bavail as i64 * block, capacity: usable as i64 * block };
        observations.insert(bytes, space);
        // Some file systems have no fixed number of inodes.
        if stat.f_files > 0 {
            observations.insert(inodes, Observation { available: stat.f_ffree as i64, capacity: stat.f_files as i64 });
        }
    }
    if let Some(pids) = observe_pids() {
        observations.insert(EvictionSignal::PidAvailable, pids);
    }
    observations
}

fn observe_pids() -> Option<Observation> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let number = |text: String| text.trim().parse::<i64>().ok();
    let most = read("/proc/sys/kernel/pid_max").and_then(number)?;
    let capacity = read("/proc/sys/kernel/threads-max").and_then(number).map_or(most, |threads| threads.min(most));
    let used: i64 = read("/proc/loadavg")?.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    Some(Observation { available: capacity - used, capacity })
}

/// Measures what pods use; those for which `is_measured` holds also on disk. Blocks.
pub fn measure_pods(
    kubelet: &KubeletContext,
    stats: &[ContainerStats],
    pods: &[std::sync::Arc<Pod>],
    is_measured: impl Fn(&Pod) -> bool,
) -> HashMap<String, PodUsage> {
    let mut usage: HashMap<String, PodUsage> = HashMap::new();
    for stats in stats {
        let Some(attributes) = &stats.attributes else { continue };
        let (Some(uid), Some(name)) =
            (attributes.labels.get(labels::POD_UID), attributes.labels.get(labels::CONTAINER))
        else {
            continue;
        };
        let pod = usage.entry(uid.clone()).or_default();
        let memory = stats.memory.as_ref().and_then(|usage| usage.working_set_bytes.as_ref());
        *pod.memory.entry(name.clone()).or_default() += memory.map_or(0, |bytes| bytes.value as i64);
        let layer = stats.writable_layer.as_ref().and_then(|usage| usage.used_bytes.as_ref());
        *pod.disk.entry(name.clone()).or_default() += layer.map_or(0, |bytes| bytes.value as i64);
    }
    for pod in pods.iter().filter(|pod| is_measured(pod)) {
        measure_disk(kubelet, pod, usage.entry(pod_uid(pod).into()).or_default());
    }
    usage
}

fn measure_disk(kubelet: &KubeletContext, pod: &Pod, usage: &mut PodUsage) {
    let logs = kubelet.pod_log_dir(pod);
    for container in fs::read_dir(logs).into_iter().flatten().flatten() {
        let name = container.file_name().to_string_lossy().into_owned();
        *usage.disk.entry(name).or_default() += disk_usage(&container.path());
    }
    let volumes = PodDir::new(&kubelet.root_dir, pod_uid(pod)).path().join("volumes/kubernetes.io~empty-dir");
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let on_disk =
            volume.empty_dir.as_ref().is_some_and(|source| source.medium.as_deref().is_none_or(str::is_empty));
        if on_disk {
            usage.empty_dirs.insert(volume.name.clone(), disk_usage(&volumes.join(&volume.name)));
        }
    }
}

/// Returns the bytes that a directory takes; links are not followed and other file systems not entered.
pub fn disk_usage(path: &Path) -> i64 {
    let Ok(root) = fs::symlink_metadata(path) else { return 0 };
    let (mut total, mut directories) = (root.blocks() as i64 * 512, vec![path.to_path_buf()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != root.dev() {
                continue;
            }
            // A file with several links is counted once for each, which errs on the side of the node.
            total += metadata.blocks() as i64 * 512;
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_measured() {
        let observed = observe_node(Path::new("/"), Path::new("/"), 1 << 60);
        for signal in [EvictionSignal::MemoryAvailable, EvictionSignal::NodeFsAvailable, EvictionSignal::PidAvailable] {
            let observation = observed[&signal];
            assert!(observation.available > 0 && observation.available <= observation.capacity, "{signal:?}");
        }
    }

    #[test]
    fn disk_usage_counts_blocks_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let used = disk_usage(dir.path());
        assert!((100_000..1_000_000).contains(&used), "{used}");
        assert_eq!(disk_usage(Path::new("/nonexistent")), 0);
    }
}
