//! New processes and namespaces: `clone3`, `unshare`, `setns` and `execve` for programs with a single thread.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// The flag of `clone3(2)`; the C library's constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Namespaces, as bits of `clone(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// No namespace.
    pub const NONE: Self = Self(0);
    /// Mounts.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// Host and domain name.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);
    /// System V IPC and message queues.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    /// Users and groups.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Processes.
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// Network.
    pub const NETWORK: Self = Self(libc::CLONE_NEWNET as u64);
    /// The root of control groups.
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP as u64);

    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A new process as its parent sees it.
#[derive(Debug)]
pub struct NewProcess {
    /// The pid in the parent's namespace.
    pub pid: i32,
    /// A descriptor that becomes readable when the process ends.
    pub handle: OwnedFd,
}

/// Outcome of [`clone_process`].
#[derive(Debug)]
pub enum Cloned {
    /// In the parent.
    Parent(NewProcess),
    /// In the child.
    Child,
}

/// Clones the calling process into new namespaces, and on version 2 of control groups into `cgroup`.
///
/// The process must have a single thread: the child goes on with a copy of its memory, locks included.
pub fn clone_process(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    clone_with(namespaces.0, libc::SIGCHLD as u64, cgroup)
}

/// Clones the calling process into new namespaces, as another child of its parent.
///
/// The process must have a single thread, as for [`clone_process`].
pub fn clone_sibling(namespaces: Namespaces) -> io::Result<Cloned> {
    // The signal at its end is that of the calling process.
    clone_with(namespaces.0 | libc::CLONE_PARENT as u64, 0, None)
}

#[allow(unsafe_code)]
fn clone_with(flags: u64, exit_signal: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut handle: libc::c_int = -1;
    // SAFETY: all fields of the structure are numbers, for which zero is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags | libc::CLONE_PIDFD as u64;
    arguments.pidfd = &raw mut handle as u64;
    arguments.exit_signal = exit_signal;
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: no memory is shared with the child and its stack is a copy, as with fork; the kernel writes the descriptor to
    // `handle`, which outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match pid {
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel has just opened this descriptor for the parent.
        pid if pid > 0 => {
            Ok(Cloned::Parent(NewProcess { pid: pid as i32, handle: unsafe { OwnedFd::from_raw_fd(handle) } }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

impl NewProcess {
    /// A process by its descriptor, with the pid that it has in the caller's namespace.
    pub fn from_handle(handle: OwnedFd) -> io::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        match pid {
            Some(pid) if pid > 0 => Ok(Self { pid, handle }),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended")),
        }
    }
}

/// Moves the calling process into new namespaces.
#[allow(unsafe_code)]
pub fn unshare_namespaces(namespaces: Namespaces) -> io::Result<()> {
    // SAFETY: only namespaces are unshared; memory and descriptors stay as they are.
    check(unsafe { libc::unshare(namespaces.0 as libc::c_int) })
}

/// Moves the calling process (for PID namespaces: its future children) into existing namespaces: those that `namespaces`
/// names of a process (a pidfd), or the one of a namespace file.
#[allow(unsafe_code)]
pub fn enter_namespaces(target: impl AsFd, namespaces: Namespaces) -> io::Result<()> {
    // SAFETY: the call takes two numbers and changes no memory.
    check(unsafe { libc::setns(target.as_fd().as_raw_fd(), namespaces.0 as libc::c_int) })
}

/// Replaces the program; returns only on failure.
#[allow(unsafe_code)]
pub fn execute(program: &CStr, arguments: &[&CStr], environment: &[&CStr]) -> io::Error {
    let pointers = |texts: &[&CStr]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: all pointers lead to strings that end in zero and live until the call returns; the lists end in null.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Replaces the program by an open file; returns only on failure.
#[allow(unsafe_code)]
pub fn execute_file(file: BorrowedFd<'_>, arguments: &[&CStr], environment: &[&CStr]) -> io::Error {
    let pointers = |texts: &[&CStr]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: as in `execute`; the empty path with AT_EMPTY_PATH names the descriptor itself.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Marks all descriptors from `first` on to be closed when a program is executed.
#[allow(unsafe_code)]
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no descriptor is closed now, so none that is owned becomes invalid.
    check(unsafe { libc::close_range(first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) })
}

/// Makes all signals have their default action and none blocked, as a new program expects.
#[allow(unsafe_code)]
pub fn reset_signals() {
    // SAFETY: default actions run no code of this program; the set is initialized before it is used. Signals that cannot be
    // changed (SIGKILL, SIGSTOP, those of the C library) are refused, which is no failure.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Blocks a signal and returns a descriptor from which it is read.
#[allow(unsafe_code)]
pub fn signal_descriptor(signal: i32) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialized before it is used, and the new descriptor has no other owner.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(descriptor)?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Sets an option of `prctl(2)` that takes a number.
#[allow(unsafe_code)]
fn set_process_option(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options that are passed take numbers only.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) })
}

/// Makes orphans among the descendants become children of this process.
pub fn become_subreaper() -> io::Result<()> {
    set_process_option(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Forbids other processes of the same user to look into this one.
pub fn forbid_inspection() -> io::Result<()> {
    set_process_option(libc::PR_SET_DUMPABLE, 0)
}

/// Has the kernel send `signal` when the parent ends.
pub fn die_with_parent(signal: i32) -> io::Result<()> {
    set_process_option(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
