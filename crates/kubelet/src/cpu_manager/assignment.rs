//! Chooses CPUs for a container as upstream does: whole NUMA nodes and sockets, then whole cores, then single threads, each
//! from where the fewest CPUs are free.

use std::collections::BTreeSet;

use super::{
    cpu_set::CpuSet,
    topology::{CpuPlace, CpuTopology},
};

/// Fewer CPUs are free than are wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
pub struct NotEnoughCpus {
    /// The number that is wanted.
    pub requested: usize,
    /// The number that is free.
    pub available: usize,
}

/// A part of a CPU's place.
type PlacePart = fn(&CpuPlace) -> u32;

const CORE: PlacePart = |place| place.core;
const SOCKET: PlacePart = |place| place.socket;
const NUMA_NODE: PlacePart = |place| place.numa_node;

/// Chooses `count` of the available CPUs.
pub fn take_by_topology(topology: &CpuTopology, available: &CpuSet, count: usize) -> Result<CpuSet, NotEnoughCpus> {
    if count > available.len() {
        return Err(NotEnoughCpus { requested: count, available: available.len() });
    }
    // The larger group comes first; a socket may have several NUMA nodes, or the reverse.
    let levels = match topology.count(SOCKET) >= topology.count(NUMA_NODE) {
        true => [NUMA_NODE, SOCKET, CORE],
        false => [SOCKET, NUMA_NODE, CORE],
    };
    let mut chooser = CpuChooser { topology, free: available.clone(), taken: CpuSet::default(), count };
    for depth in 0..levels.len() {
        chooser.take_full_groups(&levels[..=depth]);
    }
    chooser.take_single_cpus(&levels);
    Ok(chooser.taken)
}

struct CpuChooser<'a> {
    topology: &'a CpuTopology,
    free: CpuSet,
    taken: CpuSet,
    count: usize,
}

impl CpuChooser<'_> {
    fn needed(&self) -> usize {
        self.count - self.taken.len()
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.taken = self.taken.union(cpus);
        self.free = self.free.difference(cpus);
    }

    fn place(&self, cpu: u32) -> CpuPlace {
        self.topology.0.get(&cpu).copied().unwrap_or_default()
    }

    /// The CPUs among `cpus` in one group.
    fn members(&self, cpus: &CpuSet, part: PlacePart, group: u32) -> CpuSet {
        cpus.iter().filter(|cpu| part(&self.place(*cpu)) == group).collect()
    }

    /// The groups of the last level with free CPUs, in the order of the levels above; groups with few free CPUs first.
    fn sorted_groups(&self, levels: &[PlacePart]) -> Vec<u32> {
        let Some((last, above)) = levels.split_last() else { return Vec::new() };
        let groups_in = |cpus: &CpuSet| {
            let groups: BTreeSet<u32> = cpus.iter().map(|cpu| last(&self.place(cpu))).collect();
            let mut groups: Vec<u32> = groups.into_iter().collect();
            groups.sort_by_key(|group| (self.members(&self.free, *last, *group).len(), *group));
            groups
        };
        let Some(outer) = above.last() else { return groups_in(&self.free) };
        let outer_groups = self.sorted_groups(above).into_iter();
        outer_groups.flat_map(|group| groups_in(&self.members(&self.free, *outer, group))).collect()
    }

    /// Takes groups of the last level of which all CPUs are free, as long as all of them are needed.
    fn take_full_groups(&mut self, levels: &[PlacePart]) {
        let Some(part) = levels.last().copied() else { return };
        let all = self.topology.cpus();
        let groups = self.sorted_groups(levels);
        for cpus in groups.into_iter().map(|group| self.members(&all, part, group)).collect::<Vec<_>>() {
            if cpus.len() <= self.needed() && cpus.is_subset(&self.free) {
                self.take(&cpus);
            }
        }
    }

    fn take_single_cpus(&mut self, levels: &[PlacePart]) {
        let cores = self.sorted_groups(levels);
        let cpus: Vec<u32> = cores
            .into_iter()
            .flat_map(|core| self.members(&self.free, CORE, core).iter().collect::<Vec<_>>())
            .collect();
        let chosen: CpuSet = cpus.into_iter().take(self.needed()).collect();
        self.take(&chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets with a NUMA node each, two threads per core: the second threads follow after all first ones.
    fn topology(sockets: u32, cores: u32) -> CpuTopology {
        let all = sockets * cores;
        let place = |cpu: u32| CpuPlace { core: cpu % all, socket: cpu % all / cores, numa_node: cpu % all / cores };
        CpuTopology((0..all * 2).map(|cpu| (cpu, place(cpu))).collect())
    }

    #[track_caller]
    fn check(available: &str, count: usize, chosen: &str) {
        let taken = take_by_topology(&topology(2, 2), &available.parse().unwrap(), count);
        assert_eq!(taken.map(|cpus| cpus.to_string()).unwrap_or_else(|error| error.to_string()), chosen);
    }

    // Socket 0 has CPUs 0, 1, 4, 5; socket 1 has 2, 3, 6, 7. Cores are 0+4, 1+5, 2+6, 3+7.
    #[test]
    fn whole_groups_come_before_single_threads() {
        check("0-7", 4, "0-1,4-5");
        check("0-7", 6, "0-2,4-6");
        check("0-7", 2, "0,4");
        check("0-7", 1, "0");
        check("1-7", 4, "2-3,6-7");
        check("1-7", 2, "1,5");
        check("1-7", 1, "4");
        check("1-7", 3, "1,4-5");
        check("0,2,3", 2, "0,2");
        check("0-1", 3, "not enough cpus available to satisfy request: requested=3, available=2");
        check("0-1", 0, "");
    }
}
