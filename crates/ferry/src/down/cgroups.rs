//! Removes the cluster's control groups from every hierarchy, v1 and v2, with whatever still runs in them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use sys::process::ProcessHandle;

/// Time for the kernel to release a cgroup whose last process ended.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(10);

/// Removes the group of that name, for example `/ferry`; says how many there were.
pub fn remove_cgroups(name: &str) -> anyhow::Result<String> {
    let name = name.trim_start_matches('/');
    if name.is_empty() {
        bail!("the root cgroup cannot be removed");
    }
    let mut groups = Vec::new();
    for hierarchy in cgroup_hierarchies().context("/proc/self/mounts")? {
        children_first(&hierarchy.join(name), &mut groups).with_context(|| hierarchy.display().to_string())?;
    }
    let ended = end_processes(&groups)?;
    for group in &groups {
        remove_group(group).with_context(|| group.display().to_string())?;
    }
    Ok(match (groups.len(), ended) {
        (0, _) => String::new(),
        (count, 0) => format!("{count} removed"),
        (count, ended) => format!("{count} removed, {ended} processes ended"),
    })
}

fn cgroup_hierarchies() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let parsed = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup").then(|| PathBuf::from(place))
    });
    Ok(parsed.collect())
}

fn children_first(group: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children_first(&entry.path(), found)?;
        }
    }
    found.push(group.to_owned());
    Ok(())
}

/// Ends all processes in the groups; a frozen one could not end, so it is thawed first.
fn end_processes(groups: &[PathBuf]) -> anyhow::Result<usize> {
    let mut ended = 0;
    for group in groups {
        // Only the freezer's hierarchy has this file.
        let _ = fs::write(group.join("freezer.state"), "THAWED");
        let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for process in listed.lines().filter_map(|line| ProcessHandle::from_pid(line.parse().ok()?).ok()) {
            process.kill().with_context(|| format!("cannot end pid {}", process.pid))?;
            ended += 1;
        }
    }
    Ok(ended)
}

fn remove_group(group: &Path) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(RETRY);
            }
            outcome => return outcome,
        }
    }
}
