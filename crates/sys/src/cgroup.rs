//! Cgroups: version 1 (a hierarchy per controller) and version 2 (a unified hierarchy) behind one type.
//!
//! A cgroup is named by its path below the hierarchy's root, `/ferry/kubepods/burstable`. No function here kills a
//! process.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Controllers in which cgroups are created; the runtime adds others for its containers.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// A cgroup operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct CgroupError {
    /// The operation.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The I/O error.
    pub source: io::Error,
}

/// Limits of a cgroup; `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// CPU shares in version 1's unit (2 to 262144), converted to a weight in version 2.
    pub cpu_shares: Option<u64>,
    /// CPU quota in microseconds per 100 ms.
    pub cpu_quota: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// The cgroup hierarchy of this machine.
#[derive(Clone, Debug)]
pub enum CgroupManager {
    /// Version 1: one hierarchy per controller below this directory.
    V1(PathBuf),
    /// Version 2: the unified hierarchy at this directory.
    V2(PathBuf),
}

impl CgroupManager {
    /// Detects the hierarchy mounted at `root`, usually `/sys/fs/cgroup`.
    pub fn detect(root: &Path) -> Result<Self, CgroupError> {
        if root.join("cgroup.controllers").exists() {
            return Ok(Self::V2(root.into()));
        }
        if CONTROLLERS.iter().any(|controller| root.join(controller).is_dir()) {
            return Ok(Self::V1(root.into()));
        }
        let source = io::Error::new(io::ErrorKind::NotFound, "no control groups are mounted there");
        Err(CgroupError { operation: "use the control groups in", path: root.into(), source })
    }

    /// Creates a cgroup and its parents. Idempotent.
    pub fn create(&self, group: &str) -> Result<(), CgroupError> {
        for dir in self.controller_dirs(group) {
            if let Self::V2(root) = self {
                delegate_controllers(root, group)?;
            }
            with_path("make the control group", &dir, |dir| fs::create_dir_all(dir))?;
        }
        Ok(())
    }

    /// Sets the limits of an existing cgroup.
    pub fn set_limits(&self, group: &str, limits: &CgroupLimits) -> Result<(), CgroupError> {
        let file = |controller: &str, name: &str| match self {
            Self::V1(root) => cgroup_path(&root.join(controller), group).join(name),
            Self::V2(root) => cgroup_path(root, group).join(name),
        };
        let values = match self {
            Self::V1(_) => v1_values(limits),
            Self::V2(_) => v2_values(limits),
        };
        for (controller, name, value) in values {
            with_path("write", &file(controller, name), |path| fs::write(path, &value))?;
        }
        Ok(())
    }

    /// Lists the processes in a cgroup and its descendants.
    pub fn list_pids(&self, group: &str) -> Result<Vec<u32>, CgroupError> {
        let mut pids = Vec::new();
        for dir in self.all_dirs(group) {
            for group in list_tree(&dir)? {
                let text = with_path("read", &group.join("cgroup.procs"), |path| fs::read_to_string(path))?;
                pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Removes a cgroup and its descendants. An absent one is not an error; one with processes is.
    pub fn remove(&self, group: &str) -> Result<(), CgroupError> {
        for dir in self.all_dirs(group) {
            for group in list_tree(&dir)?.iter().rev() {
                match fs::remove_dir(group) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(CgroupError {
                            operation: "remove the control group",
                            path: group.clone(),
                            source: error,
                        });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the directories of a cgroup in the controllers with limits.
    fn controller_dirs(&self, group: &str) -> Vec<PathBuf> {
        match self {
            Self::V1(root) => {
                let mounted = CONTROLLERS.iter().map(|name| root.join(name)).filter(|dir| dir.is_dir());
                mounted.map(|dir| cgroup_path(&dir, group)).collect()
            }
            Self::V2(root) => vec![cgroup_path(root, group)],
        }
    }

    /// Returns the existing directories of a cgroup in every hierarchy.
    fn all_dirs(&self, group: &str) -> Vec<PathBuf> {
        let roots = match self {
            Self::V1(root) => subdirectories(root).unwrap_or_default(),
            Self::V2(root) => vec![root.clone()],
        };
        roots.iter().map(|root| cgroup_path(root, group)).filter(|dir| dir.is_dir()).collect()
    }
}

fn cgroup_path(root: &Path, group: &str) -> PathBuf {
    root.join(group.trim_start_matches('/'))
}

/// Enables the controllers in every parent's `cgroup.subtree_control`; missing controllers are skipped.
fn delegate_controllers(root: &Path, group: &str) -> Result<(), CgroupError> {
    let mut dir = root.to_path_buf();
    for part in group.trim_start_matches('/').split('/') {
        with_path("make the control group", &dir, |dir| fs::create_dir_all(dir))?;
        for controller in CONTROLLERS {
            if let Err(error) = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}")) {
                tracing::debug!(%error, controller, dir = %dir.display(), "cgroup: controller not delegated");
            }
        }
        dir.push(part);
    }
    Ok(())
}

type LimitValue = (&'static str, &'static str, String);

fn v1_values(limits: &CgroupLimits) -> Vec<LimitValue> {
    let mut values: Vec<LimitValue> = Vec::new();
    values.extend(limits.cpu_shares.map(|shares| ("cpu", "cpu.shares", shares.to_string())));
    if let Some(quota) = limits.cpu_quota {
        values.push(("cpu", "cpu.cfs_period_us", "100000".into()));
        values.push(("cpu", "cpu.cfs_quota_us", quota.to_string()));
    }
    values.extend(limits.memory.map(|bytes| ("memory", "memory.limit_in_bytes", bytes.to_string())));
    values.extend(limits.pids.map(|pids| ("pids", "pids.max", pids.to_string())));
    values
}

fn v2_values(limits: &CgroupLimits) -> Vec<LimitValue> {
    let weight = |shares: u64| 1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142;
    let mut values: Vec<LimitValue> = Vec::new();
    values.extend(limits.cpu_shares.map(|shares| ("cpu", "cpu.weight", weight(shares).to_string())));
    values.extend(limits.cpu_quota.map(|quota| ("cpu", "cpu.max", format!("{quota} 100000"))));
    values.extend(limits.memory.map(|bytes| ("memory", "memory.max", bytes.to_string())));
    values.extend(limits.pids.map(|pids| ("pids", "pids.max", pids.to_string())));
    values
}

/// Returns a directory and its descendants, parents first.
fn list_tree(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let mut found = vec![dir.to_path_buf()];
    let mut next = 0;
    while next < found.len() {
        let below = with_path("read", &found[next], subdirectories)?;
        found.extend(below);
        next += 1;
    }
    Ok(found)
}

/// Returns the subdirectories; empty if the directory is gone.
fn subdirectories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()).collect())
}

fn with_path<T>(
    operation: &'static str,
    path: &Path,
    act: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, CgroupError> {
    act(path).map_err(|source| CgroupError { operation, path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_created_limited_and_removed_in_every_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory", "pids", "freezer"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        let groups = CgroupManager::detect(root.path()).unwrap();
        groups.create("/a/b").unwrap();
        let limits =
            CgroupLimits { cpu_shares: Some(512), cpu_quota: Some(50_000), memory: Some(1 << 20), pids: Some(9) };
        groups.set_limits("/a/b", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!(read("cpu/a/b/cpu.shares"), "512");
        assert_eq!(read("cpu/a/b/cpu.cfs_quota_us"), "50000");
        assert_eq!(read("memory/a/b/memory.limit_in_bytes"), "1048576");
        let error = groups.set_limits("/absent", &limits).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("cpu/absent/cpu.shares"), "{error}");
        fs::create_dir_all(root.path().join("freezer/a/b/c")).unwrap();
        for controller in ["cpu", "memory", "pids"] {
            for file in fs::read_dir(root.path().join(controller).join("a/b")).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
        groups.remove("/a").unwrap();
        groups.remove("/a").unwrap();
        assert!(!root.path().join("freezer/a").exists() && !root.path().join("cpu/a").exists());
    }

    #[test]
    fn shares_convert_to_weights() {
        let weight = |shares| v2_values(&CgroupLimits { cpu_shares: Some(shares), ..Default::default() })[0].2.clone();
        assert_eq!((weight(2), weight(1024), weight(262_144)), ("1".into(), "39".into(), "10000".into()));
    }
}
