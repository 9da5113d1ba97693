//! User namespaces of pods, and the way of a container's first process into one.
//!
//! A short-lived child of the supervisor clones the container's mounts with the host's privileges, enters the user namespace
//! and clones the first process from there, as another child of the supervisor.

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, WaitOptions},
};
use sys::{
    clone::{self, Cloned, Namespaces, NewProcess},
    container_cgroup::ContainerCgroup,
    descriptor_passing::{message_pair, receive_with_descriptors, send_with_descriptors},
};

use super::{
    ContainerError, Operation,
    first_process::{ChildMessage, StandardFiles, become_container, receive_message, send_failure, send_message},
    prepared_mounts::PreparedMounts,
    process::{become_root, give_files},
    spec::{ContainerSpec, IdMap, PidNamespace, UserNamespaceSpec},
};

/// Lets the process that holds new namespaces go on.
const GO_ON: &[u8] = b"go";

/// Makes a user namespace, and `namespaces` that belong to it, which the calling process enters. Returns the user namespace.
pub fn create_user_namespace(users: &UserNamespaceSpec, namespaces: Namespaces) -> io::Result<OwnedFd> {
    let (ours, theirs) = message_pair()?;
    let holder = match clone::clone_process(Namespaces::USER, None)? {
        Cloned::Child => {
            drop(ours);
            hold_namespaces(&theirs, namespaces)
        }
        Cloned::Parent(process) => process,
    };
    drop(theirs);
    let entered = enter_held_namespaces(&holder, users, namespaces, &ours);
    drop(ours);
    if let Some(pid) = Pid::from_raw(holder.pid) {
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    }
    entered
}

/// Makes the other namespaces once the maps are written, and ends when the supervisor has entered them.
fn hold_namespaces(socket: &OwnedFd, namespaces: Namespaces) -> ! {
    let mut buffer = [0; 8];
    let mut wait = || receive_with_descriptors(socket, &mut buffer, &mut Vec::new());
    let made = wait().and_then(|_| match namespaces.is_empty() {
        true => Ok(()),
        false => clone::unshare_namespaces(namespaces),
    });
    if made.and_then(|()| send_with_descriptors(socket, GO_ON, &[])).is_ok() {
        let _ = wait();
    }
    std::process::exit(0)
}

fn enter_held_namespaces(
    holder: &NewProcess,
    users: &UserNamespaceSpec,
    namespaces: Namespaces,
    socket: &OwnedFd,
) -> io::Result<OwnedFd> {
    for (name, maps) in [("uid_map", &users.uids), ("gid_map", &users.gids)] {
        let path = format!("/proc/{}/{name}", holder.pid);
        fs::write(&path, format_maps(maps))
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    }
    send_with_descriptors(socket, GO_ON, &[])?;
    let mut buffer = [0; 8];
    if receive_with_descriptors(socket, &mut buffer, &mut Vec::new())? == 0 {
        return Err(io::Error::other("namespaces of the user namespace cannot be made"));
    }
    let path = format!("/proc/{}/ns/user", holder.pid);
    let user_namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    if !namespaces.is_empty() {
        clone::enter_namespaces(&holder.handle, namespaces)?;
    }
    Ok(user_namespace)
}

fn format_maps(maps: &[IdMap]) -> String {
    maps.iter().map(|map| format!("{} {} {}\n", map.container, map.host, map.length)).collect()
}

/// Becomes the child that clones the first process of a container from a user namespace.
pub fn become_intermediate(
    spec: &ContainerSpec,
    cgroup: &ContainerCgroup,
    user_namespace: BorrowedFd<'_>,
    files: &StandardFiles,
    socket: &OwnedFd,
) -> ! {
    let cloned = prepare_intermediate(spec, cgroup, user_namespace, files).and_then(|prepared| {
        let cloned = clone::clone_sibling(Namespaces::MOUNT).during(|| "clone the first process".into())?;
        Ok((cloned, prepared))
    });
    match cloned {
        Ok((Cloned::Child, prepared)) => become_container(spec, files, socket, Some(prepared)),
        Ok((Cloned::Parent(process), _)) => {
            send_message(socket, &ChildMessage::Cloned, &[process.handle.as_fd()]);
            std::process::exit(0)
        }
        Err(error) => send_failure(socket, &error),
    }
}

fn prepare_intermediate(
    spec: &ContainerSpec,
    cgroup: &ContainerCgroup,
    user_namespace: BorrowedFd<'_>,
    files: &StandardFiles,
) -> Result<PreparedMounts, ContainerError> {
    clone::forbid_inspection().during(|| "forbid inspection".into())?;
    give_files(spec.user_namespace.as_ref(), files);
    let prepared = PreparedMounts::for_user_namespace(spec, cgroup, user_namespace)?;
    enter_user_namespace(user_namespace)?;
    if spec.pid_namespace == PidNamespace::Own {
        clone::unshare_namespaces(Namespaces::PID).during(|| "new PID namespace".into())?;
    }
    Ok(prepared)
}

/// Enters a user namespace and becomes its root.
fn enter_user_namespace(user_namespace: BorrowedFd<'_>) -> Result<(), ContainerError> {
    clone::enter_namespaces(user_namespace, Namespaces::USER).during(|| "enter the user namespace".into())?;
    become_root()
}

/// Receives the first process from the child that cloned it.
pub fn receive_first_process(socket: &OwnedFd) -> io::Result<NewProcess> {
    let mut descriptors = Vec::new();
    match receive_message(socket, &mut descriptors)? {
        Some(ChildMessage::Cloned) => {
            let handle = descriptors.pop().ok_or(io::ErrorKind::InvalidData)?;
            NewProcess::from_handle(handle)
        }
        Some(ChildMessage::Failed(message)) => Err(io::Error::other(message)),
        _ => Err(io::Error::other("the process ended before its program ran")),
    }
}
