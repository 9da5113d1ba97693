//! The child that the supervisor clones: it becomes the first process of a container, or one more process in it.
//!
//! Child and supervisor share a socket of messages. The supervisor sends [`GO`] once the child is in its control group. The
//! child sends a [`ChildMessage`] when its environment is made, waits for another [`GO`] if the container waits for a start
//! request, and executes the program, which closes the socket. An error is sent as a message before the child exits.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::fs::{FileType, Mode, OFlags, Uid};
use serde::{Deserialize, Serialize};
use sys::{
    cgroup::CgroupManager,
    clone::{self, Namespaces},
    container_cgroup::ContainerCgroup,
    descriptor_passing::{receive_with_descriptors, send_with_descriptors},
    detached_mount::DetachedMount,
};

use super::{
    ContainerError, ContainerSpec, Operation, ProcessSpec,
    hooks::run_hooks,
    prepared_mounts::PreparedMounts,
    process::{StandardFiles as Files, become_program, become_root, give_files, set_standard_files, set_terminal},
    rootfs::enter_rootfs,
    spec::UserNamespaceSpec,
    users::{ResolvedUser, resolve_user},
};

pub use super::process::StandardFiles;

/// The message of the supervisor that lets the child go on.
pub const GO: &[u8] = b"go";

/// A message of the child. The terminal's descriptor comes with `Ready`.
#[derive(Debug, Deserialize, Serialize)]
pub enum ChildMessage {
    /// The environment is made.
    Ready {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
        /// All groups.
        groups: Vec<u32>,
    },
    /// The first process was cloned from a user namespace; its descriptor comes with it.
    Cloned,
    /// It could not be made.
    Failed(String),
}

/// Becomes the first process of a container. `prepared` are mounts that were made with more privileges.
pub fn become_container(spec: &ContainerSpec, files: &Files, socket: &OwnedFd, prepared: Option<PreparedMounts>) -> ! {
    let error = match prepare_container(spec, files, socket, prepared) {
        Ok(user) => become_program(&spec.process, &user),
        Err(error) => error,
    };
    send_failure(socket, &error)
}

/// Becomes another process of a running container, whose first process is `container` and whose user namespace is `users`.
pub fn become_exec(
    process: &ProcessSpec,
    (container, users): (BorrowedFd<'_>, Option<&UserNamespaceSpec>),
    files: &Files,
    socket: &OwnedFd,
) -> ! {
    let error = match prepare_exec(process, (container, users), files, socket) {
        Ok(user) => become_program(process, &user),
        Err(error) => error,
    };
    send_failure(socket, &error)
}

/// Sends an error to the supervisor and ends.
pub fn send_failure(socket: &OwnedFd, error: &ContainerError) -> ! {
    send_message(socket, &ChildMessage::Failed(error.to_string()), &[]);
    std::process::exit(1)
}

/// Sends a message to the supervisor.
pub fn send_message(socket: &OwnedFd, message: &ChildMessage, descriptors: &[BorrowedFd<'_>]) {
    let text = serde_json::to_vec(message).unwrap_or_default();
    // Without a supervisor nobody waits for the message.
    let _ = send_with_descriptors(socket, &text, descriptors);
}

/// Waits for the supervisor; if it is gone, so must the child be.
fn wait_for_go(socket: &OwnedFd) -> Result<(), ContainerError> {
    let mut buffer = [0; 8];
    match receive_with_descriptors(socket, &mut buffer, &mut Vec::new()) {
        Ok(length) if &buffer[..length] == GO => Ok(()),
        Ok(_) => Err(ContainerError::Invalid("the supervisor has ended".into())),
        Err(error) => Err(error).during(|| "wait for the supervisor".into()),
    }
}

fn prepare_container(
    spec: &ContainerSpec,
    files: &Files,
    socket: &OwnedFd,
    prepared: Option<PreparedMounts>,
) -> Result<ResolvedUser, ContainerError> {
    clone::forbid_inspection().during(|| "forbid inspection".into())?;
    // From the start request on the program's life is not bound to the supervisor's.
    clone::die_with_parent(9).during(|| "set the parent's death signal".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    wait_for_go(socket)?;
    rustix::process::setsid().during(|| "setsid".into())?;
    let manager = CgroupManager::detect(Path::new("/sys/fs/cgroup"))
        .map_err(|error| ContainerError::Invalid(error.to_string()))?;
    let cgroup = ContainerCgroup::at(&manager, &spec.cgroup.path);
    if spec.cgroup.private {
        clone::unshare_namespaces(Namespaces::CGROUP).during(|| "new control group namespace".into())?;
    }
    enter_rootfs(spec, &cgroup, prepared, || run_hooks(&spec.hooks.create_container, &spec.hook_state))?;
    let user = resolve_user(&spec.process.user, Path::new("/"))?;
    if spec.process.terminal {
        let terminal = set_terminal(&spec.process)?;
        bind_console(terminal.number)?;
        chown_terminal(&terminal.slave, user.uid);
        announce(socket, &user, &[terminal.master.as_fd()]);
    } else {
        set_standard_files(files)?;
        chown_standard_files(&user);
        announce(socket, &user, &[]);
    }
    if spec.waits_for_start {
        wait_for_go(socket)?;
    }
    run_hooks(&spec.hooks.start_container, &spec.hook_state)?;
    clone::die_with_parent(0).during(|| "clear the parent's death signal".into())?;
    Ok(user)
}

fn announce(socket: &OwnedFd, user: &ResolvedUser, descriptors: &[BorrowedFd<'_>]) {
    let ready = ChildMessage::Ready { uid: user.uid, gid: user.gid, groups: user.groups.clone() };
    send_message(socket, &ready, descriptors);
}

/// Programs expect their terminal at `/dev/console`.
fn bind_console(number: u32) -> Result<(), ContainerError> {
    let what = || "make /dev/console".to_owned();
    let slave = DetachedMount::clone_path(Path::new(&format!("/dev/pts/{number}")), false).during(what)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let console = match rustix::fs::open("/dev/console", flags, Mode::from_raw_mode(0o600)) {
        Ok(console) => console,
        // A read-only /dev has no console.
        Err(_) => return Ok(()),
    };
    slave.attach(console.as_fd()).during(what)
}

/// Gives pipes of standard input and output to the user, so that the program can open `/dev/stdout` again.
fn chown_standard_files(user: &ResolvedUser) {
    for file in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let is_pipe = rustix::fs::fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        if is_pipe {
            // A pipe whose owner cannot be changed can still be written.
            let _ = rustix::fs::fchown(file, Some(Uid::from_raw(user.uid)), None);
        }
    }
}

/// Gives the terminal to the user, so that the program can open it again.
fn chown_terminal(slave: &OwnedFd, uid: u32) {
    // A terminal whose owner cannot be changed still works.
    let _ = rustix::fs::fchown(slave, Some(Uid::from_raw(uid)), None);
}

fn prepare_exec(
    process: &ProcessSpec,
    (container, users): (BorrowedFd<'_>, Option<&UserNamespaceSpec>),
    files: &Files,
    socket: &OwnedFd,
) -> Result<ResolvedUser, ContainerError> {
    clone::forbid_inspection().during(|| "forbid inspection".into())?;
    wait_for_go(socket)?;
    rustix::process::setsid().during(|| "setsid".into())?;
    let mut namespaces = Namespaces::MOUNT.with(Namespaces::CGROUP);
    if users.is_some() {
        give_files(users, files);
        namespaces = namespaces.with(Namespaces::USER);
    }
    clone::enter_namespaces(container, namespaces).during(|| "enter the container".into())?;
    if users.is_some() {
        become_root()?;
    }
    let user = resolve_user(&process.user, Path::new("/"))?;
    if process.terminal {
        let terminal = set_terminal(process)?;
        chown_terminal(&terminal.slave, user.uid);
        announce(socket, &user, &[terminal.master.as_fd()]);
    } else {
        set_standard_files(files)?;
        chown_standard_files(&user);
        announce(socket, &user, &[]);
    }
    Ok(user)
}

/// Receives a message of the child; `None` once the program is executed or the child has ended.
pub fn receive_message(socket: &OwnedFd, descriptors: &mut Vec<OwnedFd>) -> io::Result<Option<ChildMessage>> {
    let mut buffer = vec![0; 64 << 10];
    let length = receive_with_descriptors(socket, &mut buffer, descriptors)?;
    if length == 0 {
        return Ok(None);
    }
    serde_json::from_slice(&buffer[..length]).map(Some).map_err(io::Error::from)
}
