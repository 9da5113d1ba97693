//! Resources of CRI as values of control groups.

use sys::container_cgroup::CgroupResources;

use crate::cri::types::LinuxContainerResources;

/// Returns the values; zero and empty leave a value as it is.
pub fn cgroup_resources(resources: &LinuxContainerResources) -> CgroupResources {
    let positive = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
    let given = |value: i64| (value != 0).then_some(value);
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    CgroupResources {
        cpu_shares: positive(resources.cpu_shares),
        cpu_quota: given(resources.cpu_quota),
        cpu_period: positive(resources.cpu_period),
        cpuset_cpus: text(&resources.cpuset_cpus),
        cpuset_mems: text(&resources.cpuset_mems),
        memory: given(resources.memory_limit_in_bytes),
        memory_swap: given(resources.memory_swap_limit_in_bytes),
        pids: None,
        huge_pages: resources.hugepage_limits.iter().map(|limit| (limit.page_size.clone(), limit.limit)).collect(),
        unified: resources.unified.iter().map(|(file, value)| (file.clone(), value.clone())).collect(),
    }
}
