//! Processes through `/proc` and pidfd.
//!
//! The kernel reuses pids; a [`ProcessHandle`] includes the start time and so never refers to another process.

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

/// A process, identified by pid and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessHandle {
    /// The pid.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

impl ProcessHandle {
    /// Returns the running process with this pid.
    pub fn from_pid(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The command name in parentheses may contain anything, even a parenthesis.
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        if matches!(fields.first(), Some(&"Z" | &"X")) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let started = fields.get(19).and_then(|field| field.parse().ok());
        started.map(|started| Self { pid, started }).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns the current process.
    pub fn current() -> io::Result<Self> {
        Self::from_pid(std::process::id())
    }

    /// Lists all visible processes.
    pub fn list_all() -> io::Result<Vec<Self>> {
        let names = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter_map(|name| Self::from_pid(name.parse().ok()?).ok()).collect())
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        Self::from_pid(self.pid).is_ok_and(|now| now == *self)
    }

    /// Returns its arguments, the program name first.
    pub fn arguments(&self) -> io::Result<Vec<String>> {
        let raw = fs::read(format!("/proc/{}/cmdline", self.pid))?;
        let text = String::from_utf8_lossy(&raw);
        Ok(text.trim_end_matches('\0').split('\0').map(str::to_owned).collect())
    }

    /// Returns its executable; ends in ` (deleted)` if the file was replaced.
    pub fn executable(&self) -> io::Result<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid))
    }

    /// Returns its short name.
    pub fn name(&self) -> io::Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/comm", self.pid))?.trim().to_owned())
    }

    /// Returns its resident memory in bytes.
    pub fn resident_memory(&self) -> io::Result<u64> {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.pid))?;
        let pages: Option<u64> = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
        pages.map(|pages| pages * rustix::param::page_size() as u64).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns its start time.
    pub fn started_at(&self) -> io::Result<SystemTime> {
        let stat = fs::read_to_string("/proc/stat")?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        let boot: u64 = boot.ok_or(io::ErrorKind::InvalidData)?;
        let since_boot = self.started as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(boot) + Duration::from_secs_f64(since_boot))
    }

    /// Waits until the process has exited.
    #[allow(unsafe_code)]
    pub async fn wait_for_exit(&self) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            opened => opened?,
        };
        if self.is_alive() {
            // SAFETY: an `OwnedFd` always returns the same descriptor, which stays open until it is dropped.
            let handle = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?;
            let _ended = handle.readable().await?;
        }
        Ok(())
    }

    /// Sends SIGTERM, then SIGKILL after `grace`. Returns once the process is gone.
    pub fn terminate(&self, grace: Duration) -> io::Result<()> {
        self.signal_and_wait(Signal::TERM, grace)?;
        self.kill()
    }

    /// Sends SIGKILL. Returns once the process is gone.
    pub fn kill(&self) -> io::Result<()> {
        if self.signal_and_wait(Signal::KILL, Duration::from_secs(10))? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }

    /// Sends a signal and waits for the exit; returns false after `patience`.
    fn signal_and_wait(&self, signal: Signal, patience: Duration) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(true) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        // Checked after opening the pidfd: from here on it refers to this process only.
        if !self.is_alive() {
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

/// Spawns a command in its own session, detached from the terminal and the parent's lifetime. It inherits standard input,
/// output and error only: a lock or pipe that the caller's shell left open is not kept by the daemon.
#[allow(unsafe_code)]
pub fn spawn_detached(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec the closure makes two system calls and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            let marked = libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
            if marked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    command.spawn()
}

/// Finds the process listening on a TCP port of this network namespace.
pub fn find_listener(port: u16) -> Option<ProcessHandle> {
    let sockets: Vec<PathBuf> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| listening_inode(line, port)).collect::<Vec<_>>())
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    let holds = |process: &ProcessHandle| {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| sockets.contains(&target))
    };
    if sockets.is_empty() { None } else { ProcessHandle::list_all().ok()?.into_iter().find(holds) }
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

/// Finds a program in a list of directories.
pub fn find_program(name: &str, directories: &[&Path]) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process::Stdio};

    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn detached_process_inherits_no_other_descriptors() {
        use std::os::fd::{FromRawFd, OwnedFd};
        let file = fs::File::open("/dev/null").unwrap();
        // SAFETY: the descriptor was just made and has no other owner. It lacks CLOEXEC, as what a shell leaves open.
        let inherited = unsafe { OwnedFd::from_raw_fd(libc::dup(std::os::fd::AsRawFd::as_raw_fd(&file))) };
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd").stdout(std::process::Stdio::piped());
        let output = spawn_detached(&mut command).unwrap().wait_with_output().unwrap();
        drop(inherited);
        // The last one is the directory that is read.
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n2\n3\n");
    }

    #[test]
    fn process_with_another_start_time_is_not_alive() {
        let me = ProcessHandle::current().unwrap();
        assert!(me.is_alive());
        assert!(!ProcessHandle { started: me.started + 1, ..me }.is_alive());
        assert!(me.started_at().unwrap() <= SystemTime::now());
        assert!(me.resident_memory().unwrap() > 0);
    }

    #[tokio::test]
    async fn exit_of_a_child_is_observed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = ProcessHandle::from_pid(child.id()).unwrap();
        let mut ended = std::pin::pin!(process.wait_for_exit());
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut ended).await.is_err());
        process.kill().unwrap();
        ended.await.unwrap();
        child.wait().unwrap();
        process.wait_for_exit().await.unwrap();
    }

    #[test]
    fn child_terminates_on_request() {
        let mut child = spawn_detached(Command::new("sleep").arg("1000").stdin(Stdio::null())).unwrap();
        let process = ProcessHandle::from_pid(child.id()).unwrap();
        assert_eq!(process.arguments().unwrap().last().unwrap(), "1000");
        process.terminate(Duration::from_secs(10)).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!process.is_alive());
        process.kill().unwrap();
    }

    #[test]
    fn listener_of_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(find_listener(port).unwrap().pid, std::process::id());
    }
}
