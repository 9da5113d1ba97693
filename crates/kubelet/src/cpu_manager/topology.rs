//! The CPUs of the node: which are threads of one core, cores of one socket, and near one memory.

use std::{collections::BTreeMap, fs, path::Path};

use super::cpu_set::CpuSet;

/// The place of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// The core: the lowest of its CPUs.
    pub core: u32,
    /// The socket.
    pub socket: u32,
    /// The NUMA node.
    pub numa_node: u32,
}

/// All CPUs with their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology(pub BTreeMap<u32, CpuPlace>);

impl CpuTopology {
    /// Reads the CPUs that are online from the kernel's directory of devices (`/sys/devices/system`). What the kernel does
    /// not say is zero: one socket, one NUMA node.
    pub fn read(system: &Path) -> Self {
        let online = fs::read_to_string(system.join("cpu/online")).unwrap_or_default();
        let online: CpuSet = online.parse().unwrap_or_default();
        let numa_nodes = read_numa_nodes(system);
        let place = |cpu: u32| {
            let topology = system.join(format!("cpu/cpu{cpu}/topology"));
            let siblings = fs::read_to_string(topology.join("thread_siblings_list")).unwrap_or_default();
            let siblings: CpuSet = siblings.parse().unwrap_or_default();
            let socket = fs::read_to_string(topology.join("physical_package_id")).unwrap_or_default();
            CpuPlace {
                core: siblings.iter().next().unwrap_or(cpu),
                socket: socket.trim().parse().unwrap_or(0),
                numa_node: numa_nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map_or(0, |(node, _)| *node),
            }
        };
        Self(online.iter().map(|cpu| (cpu, place(cpu))).collect())
    }

    /// All CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    /// The number of different values of a part of the CPUs' places.
    pub fn count(&self, part: fn(&CpuPlace) -> u32) -> usize {
        self.0.values().map(part).collect::<std::collections::BTreeSet<_>>().len()
    }
}

fn read_numa_nodes(system: &Path) -> Vec<(u32, CpuSet)> {
    let entries = fs::read_dir(system.join("node")).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?.parse().ok()?;
        Some((number, cpus))
    };
    entries.filter_map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_become_places() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-2\n");
        write("cpu/cpu0/topology/thread_siblings_list", "0,2\n");
        write("cpu/cpu2/topology/thread_siblings_list", "0,2\n");
        write("cpu/cpu1/topology/physical_package_id", "1\n");
        write("node/node1/cpulist", "1\n");
        let topology = CpuTopology::read(dir.path());
        assert_eq!(topology.0[&2], CpuPlace { core: 0, socket: 0, numa_node: 0 });
        assert_eq!(topology.0[&1], CpuPlace { core: 1, socket: 1, numa_node: 1 });
        assert_eq!((topology.cpus().len(), topology.count(|place| place.core)), (3, 2));
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(!CpuTopology::read(Path::new("/sys/devices/system")).0.is_empty());
    }
}
