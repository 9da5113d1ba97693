//! A program that is measured: started, watched through `/proc`, and killed at the end.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context;

/// A running program; dropping it kills it.
pub struct MeasuredProcess(Child);

impl MeasuredProcess {
    /// Starts a program whose output goes to a file.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self(child))
    }

    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// The CPU time that it has used, by itself and in the kernel.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).context("the program has ended")?;
        // The name may hold blanks; the fields after it do not.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_micros((ticks(11) + ticks(12)) * 1_000_000 / per_second))
    }

    /// The CPU time of the threads that there are, to the nanosecond: ticks are too coarse for what idles.
    pub fn precise_cpu(&self) -> anyhow::Result<Duration> {
        let mut total = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.0.id())).context("the program has ended")? {
            // A thread may end meanwhile.
            let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            total += text.split_whitespace().next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        }
        Ok(Duration::from_nanos(total))
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    /// The most resident memory so far, in bytes.
    pub fn peak(&self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).context("the program has ended")?;
        let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
        let kib: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
