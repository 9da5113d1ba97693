//! Control groups, version 1 (one tree per controller) and version 2 (one tree), behind one type.
//!
//! A group is named by its path below the root of the hierarchy, `/ferry/kubepods/burstable`, the same in every tree.
//! Nothing here kills a process.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The controllers in which groups are made; a runtime adds the others for its containers.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// An operation on a group that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct Error {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// What a group may use; `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Relative share of processor time, in version 1's unit (2 to 262144); becomes a weight in version 2.
    pub cpu_shares: Option<u64>,
    /// Microseconds of processor time per 100 ms.
    pub cpu_quota: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// The control groups of this machine.
#[derive(Clone, Debug)]
pub enum Cgroups {
    /// One tree per controller, below this directory.
    V1(PathBuf),
    /// One tree, at this directory.
    V2(PathBuf),
}

impl Cgroups {
    /// Looks at what is mounted on `root`, usually `/sys/fs/cgroup`.
    pub fn detect(root: &Path) -> Result<Self, Error> {
        if root.join("cgroup.controllers").exists() {
            return Ok(Self::V2(root.into()));
        }
        if CONTROLLERS.iter().any(|controller| root.join(controller).is_dir()) {
            return Ok(Self::V1(root.into()));
        }
        let source = io::Error::new(io::ErrorKind::NotFound, "no control groups are mounted there");
        Err(Error { operation: "use the control groups in", path: root.into(), source })
    }

    /// Makes a group and those above it. Doing it twice is no error.
    pub fn create(&self, group: &str) -> Result<(), Error> {
        for dir in self.controller_dirs(group) {
            if let Self::V2(root) = self {
                delegate(root, group)?;
            }
            on("make the control group", &dir, |dir| fs::create_dir_all(dir))?;
        }
        Ok(())
    }

    /// Sets limits of an existing group.
    pub fn set(&self, group: &str, limits: &Limits) -> Result<(), Error> {
        let file = |controller: &str, name: &str| match self {
            Self::V1(root) => join(&root.join(controller), group).join(name),
            Self::V2(root) => join(root, group).join(name),
        };
        let values = match self {
            Self::V1(_) => v1_values(limits),
            Self::V2(_) => v2_values(limits),
        };
        for (controller, name, value) in values {
            on("write", &file(controller, name), |path| fs::write(path, &value))?;
        }
        Ok(())
    }

    /// The processes in a group and in those below it.
    pub fn pids(&self, group: &str) -> Result<Vec<u32>, Error> {
        let mut pids = Vec::new();
        for dir in self.all_dirs(group) {
            for group in tree(&dir)? {
                let text = on("read", &group.join("cgroup.procs"), |path| fs::read_to_string(path))?;
                pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Removes a group and those below it. One that is not there is no error; one with processes in it is.
    pub fn remove(&self, group: &str) -> Result<(), Error> {
        for dir in self.all_dirs(group) {
            for group in tree(&dir)?.iter().rev() {
                match fs::remove_dir(group) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(Error {
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

    /// The directories of a group in the controllers that limits are set in.
    fn controller_dirs(&self, group: &str) -> Vec<PathBuf> {
        match self {
            Self::V1(root) => {
                let mounted = CONTROLLERS.iter().map(|name| root.join(name)).filter(|dir| dir.is_dir());
                mounted.map(|dir| join(&dir, group)).collect()
            }
            Self::V2(root) => vec![join(root, group)],
        }
    }

    /// The directories of a group in every tree where it exists.
    fn all_dirs(&self, group: &str) -> Vec<PathBuf> {
        let roots = match self {
            Self::V1(root) => subdirectories(root).unwrap_or_default(),
            Self::V2(root) => vec![root.clone()],
        };
        roots.iter().map(|root| join(root, group)).filter(|dir| dir.is_dir()).collect()
    }
}

fn join(root: &Path, group: &str) -> PathBuf {
    root.join(group.trim_start_matches('/'))
}

/// Lets every group above the new one hand its controllers down. A controller that is missing is left out.
fn delegate(root: &Path, group: &str) -> Result<(), Error> {
    let mut dir = root.to_path_buf();
    for part in group.trim_start_matches('/').split('/') {
        on("make the control group", &dir, |dir| fs::create_dir_all(dir))?;
        for controller in CONTROLLERS {
            if let Err(error) = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}")) {
                tracing::debug!(%error, controller, dir = %dir.display(), "a controller cannot be delegated");
            }
        }
        dir.push(part);
    }
    Ok(())
}

type Value = (&'static str, &'static str, String);

fn v1_values(limits: &Limits) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    values.extend(limits.cpu_shares.map(|shares| ("cpu", "cpu.shares", shares.to_string())));
    if let Some(quota) = limits.cpu_quota {
        values.push(("cpu", "cpu.cfs_period_us", "100000".into()));
        values.push(("cpu", "cpu.cfs_quota_us", quota.to_string()));
    }
    values.extend(limits.memory.map(|bytes| ("memory", "memory.limit_in_bytes", bytes.to_string())));
    values.extend(limits.pids.map(|pids| ("pids", "pids.max", pids.to_string())));
    values
}

fn v2_values(limits: &Limits) -> Vec<Value> {
    let weight = |shares: u64| 1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142;
    let mut values: Vec<Value> = Vec::new();
    values.extend(limits.cpu_shares.map(|shares| ("cpu", "cpu.weight", weight(shares).to_string())));
    values.extend(limits.cpu_quota.map(|quota| ("cpu", "cpu.max", format!("{quota} 100000"))));
    values.extend(limits.memory.map(|bytes| ("memory", "memory.max", bytes.to_string())));
    values.extend(limits.pids.map(|pids| ("pids", "pids.max", pids.to_string())));
    values
}

/// A directory and all below it, parents before children.
fn tree(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = vec![dir.to_path_buf()];
    let mut next = 0;
    while next < found.len() {
        let below = on("read", &found[next], subdirectories)?;
        found.extend(below);
        next += 1;
    }
    Ok(found)
}

/// The directories in a directory; none if it has gone away.
fn subdirectories(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()).collect())
}

fn on<T>(operation: &'static str, path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, Error> {
    act(path).map_err(|source| Error { operation, path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_limited_and_removed_in_every_tree() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory", "pids", "freezer"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        let groups = Cgroups::detect(root.path()).unwrap();
        groups.create("/a/b").unwrap();
        let limits = Limits { cpu_shares: Some(512), cpu_quota: Some(50_000), memory: Some(1 << 20), pids: Some(9) };
        groups.set("/a/b", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!(read("cpu/a/b/cpu.shares"), "512");
        assert_eq!(read("cpu/a/b/cpu.cfs_quota_us"), "50000");
        assert_eq!(read("memory/a/b/memory.limit_in_bytes"), "1048576");
        let error = groups.set("/absent", &limits).unwrap_err().to_string();
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
    fn shares_become_weights() {
        let weight = |shares| v2_values(&Limits { cpu_shares: Some(shares), ..Default::default() })[0].2.clone();
        assert_eq!((weight(2), weight(1024), weight(262_144)), ("1".into(), "39".into(), "10000".into()));
    }
}
