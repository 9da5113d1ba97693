//! Which process runs a cluster: a lock that only one process can hold, and a file that says who it is.
//!
//! The file is believed only if `/proc` shows a process of that number with the same start, program and arguments: a
//! number alone may have been reused since.

use std::{
    fs::{self, File},
    io,
    time::SystemTime,
};

use anyhow::Context;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use sys::process::ProcessHandle;

use crate::{atomic, instance::ClusterInstance};

/// The right to run or to take down a cluster, for as long as this lives.
#[derive(Debug)]
pub struct InstanceLock {
    instance: ClusterInstance,
    _file: File,
}

impl InstanceLock {
    /// Takes the lock; `None` if another process has it.
    pub fn take(instance: &ClusterInstance) -> anyhow::Result<Option<Self>> {
        let path = instance.lock();
        let open = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.with_context(|| path.display().to_string())?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { instance: instance.clone(), _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(io::Error::from(error)).with_context(|| path.display().to_string()),
        }
    }

    /// Says that this process runs the cluster.
    pub fn claim(&self) -> anyhow::Result<()> {
        let text = describe_process(&ProcessHandle::current()?)?;
        let path = self.instance.pid_file();
        atomic::write_file(&path, text.as_bytes(), atomic::PUBLIC).with_context(|| path.display().to_string())
    }

    /// Says that no process runs the cluster any more.
    pub fn release(&self) {
        // Nothing depends on it: a file without a living process means nothing.
        let _ = fs::remove_file(self.instance.pid_file());
    }
}

/// The process that runs the cluster.
pub fn running_pid(instance: &ClusterInstance) -> Option<ProcessHandle> {
    let text = atomic::read_file(&instance.pid_file()).ok()??;
    let process = ProcessHandle::from_pid(text.lines().next()?.parse().ok()?).ok()?;
    (describe_process(&process).ok()? == text).then_some(process)
}

/// Pid, start, program and arguments, a line each.
fn describe_process(process: &ProcessHandle) -> io::Result<String> {
    let program = process.executable()?;
    // The program may have been replaced by a newer one meanwhile.
    let program = program.to_string_lossy();
    let program = program.trim_end_matches(" (deleted)");
    let arguments = process.arguments()?.join(" ").replace('\n', " ");
    Ok(format!("{}\n{}\n{program}\n{arguments}\n", process.pid, process.started))
}

/// When a process started, for people.
pub fn format_start_time(process: &ProcessHandle) -> String {
    process.started_at().map_or_else(|_| "?".into(), format_time)
}

/// Formats a time in UTC.
pub fn format_time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| "?".into(), |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_claimed_is_believed() {
        let directory = tempfile::tempdir().unwrap();
        let instance = ClusterInstance::at(directory.path()).unwrap();
        assert_eq!(running_pid(&instance), None);

        let lock = InstanceLock::take(&instance).unwrap().unwrap();
        lock.claim().unwrap();
        assert_eq!(running_pid(&instance).unwrap().pid, std::process::id());
        assert!(InstanceLock::take(&instance).unwrap().is_none());

        let claimed = fs::read_to_string(instance.pid_file()).unwrap();
        let lines: Vec<&str> = claimed.lines().collect();
        for (line, wrong) in [(0, "1"), (1, "12345"), (2, "/bin/other"), (3, "other arguments")] {
            let mut forged = lines.clone();
            forged[line] = wrong;
            fs::write(instance.pid_file(), forged.join("\n") + "\n").unwrap();
            assert_eq!(running_pid(&instance), None, "line {line}");
        }

        lock.release();
        drop(lock);
        assert_eq!(running_pid(&instance), None);
        assert!(InstanceLock::take(&instance).unwrap().is_some());
    }
}
