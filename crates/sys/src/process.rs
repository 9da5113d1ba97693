//! Processes as `/proc` shows them: who one is, since when, what it holds; and how to start and end one.
//!
//! A pid alone is reused by the kernel; a [`Process`] also knows when it started, so that it never means another one.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::io::{Interest, unix::AsyncFd};

/// One process, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The kernel's number for it.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The running process of that number.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in brackets, may hold anything, even a bracket.
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        if matches!(fields.first(), Some(&"Z" | &"X")) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let started = fields.get(19).and_then(|field| field.parse().ok());
        started.map(|started| Self { pid, started }).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// This process.
    pub fn current() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Every process that can be seen.
    pub fn all() -> io::Result<Vec<Self>> {
        let names = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter_map(|name| Self::of(name.parse().ok()?).ok()).collect())
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    /// Its arguments, the program's name first.
    pub fn arguments(&self) -> io::Result<Vec<String>> {
        let raw = fs::read(format!("/proc/{}/cmdline", self.pid))?;
        let text = String::from_utf8_lossy(&raw);
        Ok(text.trim_end_matches('\0').split('\0').map(str::to_owned).collect())
    }

    /// The file that it executes; ends in ` (deleted)` when that was replaced.
    pub fn executable(&self) -> io::Result<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid))
    }

    /// Its short name.
    pub fn name(&self) -> io::Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/comm", self.pid))?.trim().to_owned())
    }

    /// The memory that it holds, in bytes.
    pub fn resident_memory(&self) -> io::Result<u64> {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.pid))?;
        let pages: Option<u64> = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
        pages.map(|pages| pages * rustix::param::page_size() as u64).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// When it started.
    pub fn started_at(&self) -> io::Result<SystemTime> {
        let stat = fs::read_to_string("/proc/stat")?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        let boot: u64 = boot.ok_or(io::ErrorKind::InvalidData)?;
        let since_boot = self.started as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(boot) + Duration::from_secs_f64(since_boot))
    }

    /// Returns once it has ended.
    #[allow(unsafe_code)]
    pub async fn ended(&self) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            opened => opened?,
        };
        if self.alive() {
            // SAFETY: an `OwnedFd` always returns the same descriptor, which stays open until it is dropped.
            let handle = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?;
            let _ended = handle.readable().await?;
        }
        Ok(())
    }

    /// Asks it to end, and makes it end after `grace`. Returns once it is gone.
    pub fn terminate(&self, grace: Duration) -> io::Result<()> {
        self.signal_and_wait(Signal::TERM, grace)?;
        self.kill()
    }

    /// Ends it at once. Returns once it is gone.
    pub fn kill(&self) -> io::Result<()> {
        if self.signal_and_wait(Signal::KILL, Duration::from_secs(10))? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }

    /// Sends a signal and waits for the end; false if it still runs after `patience`.
    fn signal_and_wait(&self, signal: Signal, patience: Duration) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(true) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        // Checked after the handle is open: from here on it can mean no other process.
        if !self.alive() {
            return Ok(true);
        }
        match pidfd_send_signal(&handle, signal) {
            Ok(()) => {}
            Err(rustix::io::Errno::SRCH) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Starts a command in a session of its own, so that it neither gets the terminal's signals nor ends with its parent.
#[allow(unsafe_code)]
pub fn spawn_detached(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec the closure makes one system call and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    command.spawn()
}

/// The process that listens on a TCP port of this network namespace, if it can be found.
pub fn listener_of(port: u16) -> Option<Process> {
    let sockets: Vec<PathBuf> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| listening_inode(line, port)).collect::<Vec<_>>())
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    let holds = |process: &Process| {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| sockets.contains(&target))
    };
    if sockets.is_empty() { None } else { Process::all().ok()?.into_iter().find(holds) }
}

fn listening_inode(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    let listens = *fields.get(3)? == "0A";
    fields.get(9)?.parse().ok().filter(|_| listens && local == port)
}

/// Whether this process has an effective capability, for example 24 (`CAP_SYS_RESOURCE`).
pub fn has_capability(number: u32) -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let set = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    set.map(|set| set >> number & 1 == 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The first file of that name in the directories, as a shell would search a path.
pub fn find_program(name: &str, directories: &[&Path]) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process::Stdio};

    use super::*;

    #[test]
    fn this_process_is_alive_and_another_start_is_not() {
        let me = Process::current().unwrap();
        assert!(me.alive());
        assert!(!Process { started: me.started + 1, ..me }.alive());
        assert!(me.started_at().unwrap() <= SystemTime::now());
        assert!(me.resident_memory().unwrap() > 0);
    }

    #[tokio::test]
    async fn the_end_of_a_child_is_noticed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        let mut ended = std::pin::pin!(process.ended());
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut ended).await.is_err());
        process.kill().unwrap();
        ended.await.unwrap();
        child.wait().unwrap();
        process.ended().await.unwrap();
    }

    #[test]
    fn a_child_ends_when_asked() {
        let mut child = spawn_detached(Command::new("sleep").arg("1000").stdin(Stdio::null())).unwrap();
        let process = Process::of(child.id()).unwrap();
        assert_eq!(process.arguments().unwrap().last().unwrap(), "1000");
        process.terminate(Duration::from_secs(10)).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!process.alive());
        process.kill().unwrap();
    }

    #[test]
    fn the_holder_of_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listener_of(port).unwrap().pid, std::process::id());
    }
}
