//! The control group of one container, in every controller of version 1 or in the tree of version 2.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use crate::cgroup::{CgroupError, CgroupManager};

/// Controllers of version 2 that containers use.
const V2_CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "io", "memory", "pids", "hugetlb"];

/// The group of a container.
#[derive(Clone, Debug)]
pub struct ContainerCgroup {
    /// Its directory in each hierarchy, with the hierarchy's name.
    directories: Vec<(String, PathBuf)>,
    is_unified: bool,
}

/// Resources; `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupResources {
    /// Shares in the unit of version 1.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU per period; negative: no limit.
    pub cpu_quota: Option<i64>,
    /// The period in microseconds.
    pub cpu_period: Option<u64>,
    /// CPUs, as a list.
    pub cpuset_cpus: Option<String>,
    /// Memory nodes, as a list.
    pub cpuset_mems: Option<String>,
    /// Bytes of memory; negative: no limit.
    pub memory: Option<i64>,
    /// Bytes of memory and swap together; negative: no limit.
    pub memory_swap: Option<i64>,
    /// Processes; negative: no limit.
    pub pids: Option<i64>,
    /// Limits of huge pages by size, such as `2MB`.
    pub huge_pages: Vec<(String, u64)>,
    /// Files of version 2 with their values.
    pub unified: Vec<(String, String)>,
}

/// Usage of a group; what the kernel does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// Nanoseconds of CPU.
    pub cpu_nanoseconds: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// The limit of memory.
    pub memory_limit: Option<u64>,
    /// Bytes of file pages that were not used lately.
    pub inactive_file: u64,
    /// Bytes of anonymous memory.
    pub rss: u64,
    /// Page faults.
    pub page_faults: u64,
    /// Page faults that needed I/O.
    pub major_page_faults: u64,
    /// Bytes of swap.
    pub swap: Option<u64>,
    /// The limit of swap.
    pub swap_limit: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

impl CgroupUsage {
    /// Memory without file pages that can be dropped.
    pub fn working_set(&self) -> Option<u64> {
        self.memory.map(|memory| memory.saturating_sub(self.inactive_file))
    }
}

impl ContainerCgroup {
    /// The group at a path below the root of each hierarchy; it need not exist.
    pub fn at(manager: &CgroupManager, group: &str) -> Self {
        let group = group.trim_start_matches('/');
        match manager {
            CgroupManager::V2(root) => Self { directories: vec![(String::new(), root.join(group))], is_unified: true },
            CgroupManager::V1(root) => {
                let names = fs::read_dir(root).into_iter().flatten().flatten();
                let mut names: Vec<String> = names
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .filter_map(|entry| entry.file_name().into_string().ok())
                    .filter(|name| name != "unified" && root.join(name).join("cgroup.procs").exists())
                    .collect();
                names.sort();
                let directories = names.into_iter().map(|name| (name.clone(), root.join(name).join(group))).collect();
                Self { directories, is_unified: false }
            }
        }
    }

    /// Whether this is version 2.
    pub fn is_unified(&self) -> bool {
        self.is_unified
    }

    /// Its directories, each with the name of its hierarchy (empty in version 2).
    pub fn directories(&self) -> &[(String, PathBuf)] {
        &self.directories
    }

    /// Creates the group with its parents.
    pub fn create(&self) -> Result<(), CgroupError> {
        for (name, directory) in &self.directories {
            if self.is_unified {
                delegate(directory);
            }
            let fail = |source| CgroupError { operation: "make the control group", path: directory.clone(), source };
            fs::create_dir_all(directory).map_err(fail)?;
            if name == "cpuset" || name.split(',').any(|one| one == "cpuset") {
                inherit_cpuset(directory).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// Opens the directory of version 2, into which processes can be cloned.
    pub fn open_unified(&self) -> Option<io::Result<OwnedFd>> {
        let (_, directory) = self.directories.first().filter(|_| self.is_unified)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Some(rustix::fs::open(directory, flags, Mode::empty()).map_err(io::Error::from))
    }

    /// Moves a process into the group.
    pub fn attach(&self, pid: i32) -> Result<(), CgroupError> {
        for (_, directory) in &self.directories {
            write(&directory.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Sets resources. What a hierarchy lacks is an error only if it limits something.
    pub fn set_resources(&self, resources: &CgroupResources) -> Result<(), CgroupError> {
        let values = if self.is_unified { unified_values(resources) } else { legacy_values(self, resources) };
        for (controller, file, value) in values {
            let Some(directory) = self.directory_of(controller) else {
                let source = io::Error::new(io::ErrorKind::NotFound, "this kernel has no such controller");
                return Err(CgroupError { operation: "use the controller", path: controller.into(), source });
            };
            write(&directory.join(file), &value)?;
        }
        Ok(())
    }

    /// Writes device rules of version 1, such as `a *:* rwm`; version 2 has a program instead.
    pub fn set_legacy_devices(&self, rules: &[(bool, String)]) -> Result<(), CgroupError> {
        let Some(directory) = self.directory_of("devices").filter(|_| !self.is_unified) else { return Ok(()) };
        for (allow, rule) in rules {
            let file = if *allow { "devices.allow" } else { "devices.deny" };
            write(&directory.join(file), rule)?;
        }
        Ok(())
    }

    /// The directory of a controller.
    pub fn directory_of(&self, controller: &str) -> Option<&Path> {
        let found = self.directories.iter().find(|(name, directory)| {
            self.is_unified || (name.split(',').any(|one| one == controller) && directory.parent().is_some())
        });
        found.map(|(_, directory)| directory.as_path())
    }

    /// Returns the number of processes of the group that the kernel killed for want of memory.
    pub fn out_of_memory_kills(&self) -> u64 {
        let file = if self.is_unified { "memory.events" } else { "memory.oom_control" };
        let Some(directory) = self.directory_of("memory") else { return 0 };
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// The processes of the group and of groups below it.
    pub fn list_pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        for (_, directory) in &self.directories {
            collect_pids(directory, &mut pids);
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Sends SIGKILL to every process of the group; false if there was none.
    pub fn kill_all(&self) -> bool {
        if let Some((_, directory)) = self.directories.first().filter(|_| self.is_unified)
            && fs::write(directory.join("cgroup.kill"), "1").is_ok()
        {
            return !self.list_pids().is_empty();
        }
        let pids = self.list_pids();
        for pid in &pids {
            if let Some(pid) = rustix::process::Pid::from_raw(*pid) {
                // One that has ended meanwhile is what is wanted.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        !pids.is_empty()
    }

    /// Removes the group and those below it; one with processes is an error.
    pub fn remove(&self) -> Result<(), CgroupError> {
        for (_, directory) in &self.directories {
            remove_tree(directory).map_err(|source| CgroupError {
                operation: "remove the control group",
                path: directory.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Reads the usage.
    pub fn usage(&self) -> CgroupUsage {
        if self.is_unified { unified_usage(&self.directories[0].1) } else { legacy_usage(self) }
    }
}

type Value = (&'static str, String, String);

fn limit(value: i64) -> String {
    if value < 0 { "-1".into() } else { value.to_string() }
}

fn legacy_values(group: &ContainerCgroup, resources: &CgroupResources) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    let mut add = |controller, file: &str, value: String| values.push((controller, file.to_owned(), value));
    if let Some(shares) = resources.cpu_shares.filter(|shares| *shares > 0) {
        add("cpu", "cpu.shares", shares.to_string());
    }
    if let Some(period) = resources.cpu_period.filter(|period| *period > 0) {
        add("cpu", "cpu.cfs_period_us", period.to_string());
    }
    if let Some(quota) = resources.cpu_quota.filter(|quota| *quota != 0) {
        add("cpu", "cpu.cfs_quota_us", limit(quota));
    }
    for (file, list) in [("cpuset.cpus", &resources.cpuset_cpus), ("cpuset.mems", &resources.cpuset_mems)] {
        if let Some(list) = list.as_ref().filter(|list| !list.is_empty()) {
            add("cpuset", file, list.clone());
        }
    }
    if let Some(memory) = resources.memory.filter(|memory| *memory != 0) {
        let swap = resources.memory_swap.filter(|swap| *swap != 0);
        let has_swap = group.directory_of("memory").is_some_and(|dir| dir.join(SWAP_LIMIT).exists());
        // The limit with swap is never below the one without, so the order depends on the direction.
        let now = group.directory_of("memory").and_then(|dir| read_number(&dir.join("memory.limit_in_bytes")));
        let mut writes = vec![("memory.limit_in_bytes", limit(memory))];
        if let Some(swap) = swap.filter(|_| has_swap) {
            let grows = now.is_none_or(|now| memory < 0 || memory as u64 >= now);
            writes.insert(if grows { 0 } else { 1 }, (SWAP_LIMIT, limit(swap)));
        }
        writes.into_iter().for_each(|(file, value)| add("memory", file, value));
    }
    if let Some(pids) = resources.pids.filter(|pids| *pids != 0) {
        add("pids", "pids.max", if pids < 0 { "max".into() } else { pids.to_string() });
    }
    for (size, bytes) in &resources.huge_pages {
        // Upstream skips sizes that the kernel has not.
        if group.directory_of("hugetlb").is_some() {
            add("hugetlb", &format!("hugetlb.{size}.limit_in_bytes"), bytes.to_string());
        }
    }
    values
}

const SWAP_LIMIT: &str = "memory.memsw.limit_in_bytes";

fn unified_values(resources: &CgroupResources) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    let mut add = |file: &str, value: String| values.push(("", file.to_owned(), value));
    if let Some(shares) = resources.cpu_shares.filter(|shares| *shares > 0) {
        add("cpu.weight", (1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142).to_string());
    }
    if resources.cpu_quota.is_some_and(|quota| quota != 0) || resources.cpu_period.is_some_and(|period| period > 0) {
        let quota = resources.cpu_quota.filter(|quota| *quota > 0).map_or("max".into(), |quota| quota.to_string());
        let period = resources.cpu_period.filter(|period| *period > 0).unwrap_or(100_000);
        add("cpu.max", format!("{quota} {period}"));
    }
    for (file, list) in [("cpuset.cpus", &resources.cpuset_cpus), ("cpuset.mems", &resources.cpuset_mems)] {
        if let Some(list) = list.as_ref().filter(|list| !list.is_empty()) {
            add(file, list.clone());
        }
    }
    let maximum = |value: i64| if value < 0 { "max".to_owned() } else { value.to_string() };
    if let Some(memory) = resources.memory.filter(|memory| *memory != 0) {
        if let Some(swap) = resources.memory_swap.filter(|swap| *swap != 0) {
            add("memory.swap.max", if swap < 0 { "max".into() } else { (swap - memory).max(0).to_string() });
        }
        add("memory.max", maximum(memory));
    }
    if let Some(pids) = resources.pids.filter(|pids| *pids != 0) {
        add("pids.max", maximum(pids));
    }
    for (size, bytes) in &resources.huge_pages {
        add(&format!("hugetlb.{size}.max"), bytes.to_string());
    }
    for (file, value) in &resources.unified {
        add(file, value.clone());
    }
    values
}

fn legacy_usage(group: &ContainerCgroup) -> CgroupUsage {
    let number = |controller: &str, file: &str| read_number(&group.directory_of(controller)?.join(file));
    let memory_dir = group.directory_of("memory");
    let stat = memory_dir.map(|dir| fs::read_to_string(dir.join("memory.stat")).unwrap_or_default());
    let stat = stat.unwrap_or_default();
    let swap = number("memory", "memory.memsw.usage_in_bytes");
    let memory = number("memory", "memory.usage_in_bytes");
    CgroupUsage {
        cpu_nanoseconds: number("cpuacct", "cpuacct.usage"),
        memory,
        memory_limit: number("memory", "memory.limit_in_bytes").filter(|limit| *limit < 1 << 62),
        inactive_file: field(&stat, "total_inactive_file"),
        rss: field(&stat, "total_rss"),
        page_faults: field(&stat, "total_pgfault"),
        major_page_faults: field(&stat, "total_pgmajfault"),
        swap: swap.and_then(|swap| Some(swap.saturating_sub(memory?))),
        swap_limit: number("memory", SWAP_LIMIT).filter(|limit| *limit < 1 << 62),
        pids: number("pids", "pids.current"),
    }
}

fn unified_usage(directory: &Path) -> CgroupUsage {
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let number = |file: &str| read_number(&directory.join(file));
    let stat = read("memory.stat");
    CgroupUsage {
        cpu_nanoseconds: read("cpu.stat")
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())
            .map(|microseconds| microseconds * 1000),
        memory: number("memory.current"),
        memory_limit: number("memory.max"),
        inactive_file: field(&stat, "inactive_file"),
        rss: field(&stat, "anon"),
        page_faults: field(&stat, "pgfault"),
        major_page_faults: field(&stat, "pgmajfault"),
        swap: number("memory.swap.current"),
        swap_limit: number("memory.swap.max"),
        pids: number("pids.current"),
    }
}

fn field(text: &str, name: &str) -> u64 {
    let mut found = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    found.next().unwrap_or(0)
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(|source| CgroupError { operation: "write", path: path.into(), source })
}

/// Enables controllers in the parents; one that a parent lacks stays off.
fn delegate(directory: &Path) {
    let mut parents: Vec<&Path> = directory.ancestors().skip(1).collect();
    parents.retain(|parent| parent.starts_with("/sys/fs/cgroup"));
    for parent in parents.into_iter().rev() {
        if fs::create_dir_all(parent).is_err() {
            return;
        }
        for controller in V2_CONTROLLERS {
            let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

/// A new group of version 1 has no CPUs until it is given some: those of its parent.
fn inherit_cpuset(directory: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if !fs::read_to_string(directory.join(file))?.trim().is_empty() {
            continue;
        }
        let Some(parent) = directory.parent().filter(|parent| parent.join(file).exists()) else { continue };
        if fs::read_to_string(parent.join(file))?.trim().is_empty() {
            inherit_cpuset(parent)?;
        }
        fs::write(directory.join(file), fs::read_to_string(parent.join(file))?.trim())?;
    }
    Ok(())
}

fn collect_pids(directory: &Path, pids: &mut Vec<i32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_pids(&entry.path(), pids);
        }
    }
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
