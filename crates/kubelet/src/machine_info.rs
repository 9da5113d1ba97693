//! Hardware and system information, read once at start.

use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;

use crate::{eviction_thresholds::EvictionSignal, resources::NodeResources, settings::KubeletSettings};

/// The Kubernetes version that this kubelet reports.
const VERSION: &str = "v1.36.4";

/// The node's hardware and system.
#[derive(Clone, Debug)]
pub struct MachineInfo {
    /// Number of CPUs.
    pub cpus: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of the file system that pods write to.
    pub storage: i64,
    /// Number of pods.
    pub max_pods: i64,
    /// Amounts that pods cannot use: CPU in millicores, the others in bytes.
    pub reserved: ReservedResources,
    /// System information for the Node status.
    pub info: NodeSystemInfo,
}

/// Amounts that are kept from pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReservedResources {
    /// CPU in millicores.
    pub cpu_millis: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: i64,
}

impl MachineInfo {
    /// Reads this machine; `root_dir` is on the file system that pods write to.
    pub fn read(root_dir: &Path, runtime_version: String, settings: &KubeletSettings) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let uname = rustix::system::uname();
        let storage = rustix::fs::statvfs(root_dir).map_or(0, |stat| stat.f_blocks * stat.f_frsize);
        let machine_id = read("/etc/machine-id");
        let info = NodeSystemInfo {
            architecture: go_architecture().into(),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            container_runtime_version: runtime_version,
            kernel_version: uname.release().to_string_lossy().into_owned(),
            kube_proxy_version: String::new(),
            kubelet_version: VERSION.into(),
            system_uuid: Some(read("/sys/class/dmi/id/product_uuid"))
                .filter(|id| !id.is_empty())
                .unwrap_or_else(|| machine_id.clone()),
            machine_id,
            operating_system: "linux".into(),
            os_image: parse_os_image(&read("/etc/os-release")),
            swap: None,
        };
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
        let (memory, storage) = (parse_total_memory(&read("/proc/meminfo")), storage as i64);
        let per_core = Some(settings.pods_per_core * cpus).filter(|pods| *pods > 0);
        let set_aside = |name: &str| settings.reserved.get(name).copied().unwrap_or_default();
        let eviction = &settings.eviction;
        let reserved = ReservedResources {
            cpu_millis: set_aside("cpu"),
            memory: set_aside("memory") + eviction.hard_limit(EvictionSignal::MemoryAvailable, memory),
            ephemeral_storage: set_aside("ephemeral-storage")
                + eviction.hard_limit(EvictionSignal::NodeFsAvailable, storage),
        };
        let max_pods = per_core.map_or(settings.max_pods, |pods| pods.min(settings.max_pods));
        Self { cpus, memory, storage, max_pods, reserved, info }
    }
}

impl MachineInfo {
    /// Returns all resources of the node.
    pub fn capacity(&self) -> NodeResources {
        NodeResources {
            cpu_millis: self.cpus * 1000,
            memory: self.memory,
            ephemeral_storage: self.storage,
            pods: self.max_pods,
        }
    }

    /// Returns the resources that pods can use: the capacity without what is reserved and what hard eviction thresholds
    /// keep free.
    pub fn allocatable(&self) -> NodeResources {
        let capacity = self.capacity();
        NodeResources {
            cpu_millis: (capacity.cpu_millis - self.reserved.cpu_millis).max(0),
            memory: (capacity.memory - self.reserved.memory).max(0),
            ephemeral_storage: (capacity.ephemeral_storage - self.reserved.ephemeral_storage).max(0),
            ..capacity
        }
    }
}

/// Returns the architecture as `GOARCH`.
pub fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn parse_os_image(os_release: &str) -> String {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.map_or("Linux", |name| name.trim_matches('"')).into()
}

fn parse_total_memory(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<i64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_files_are_parsed() {
        assert_eq!(parse_total_memory("MemTotal:       24689012 kB\nMemFree: 1 kB\n"), 24_689_012 * 1024);
        assert_eq!(
            parse_os_image("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
        let machine = MachineInfo::read(Path::new("/"), "containerd://1".into(), &KubeletSettings::default());
        assert!(machine.cpus > 0 && machine.memory > 0 && machine.storage > 0);
    }
}
