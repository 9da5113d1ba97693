//! The pod's namespaces: the supervisor itself lives in them; a shared PID namespace is held by the pause process.

use std::{
    fs, io,
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use sys::{
    cgroup::CgroupManager,
    clone::{self, Cloned, Namespaces, NewProcess},
    container_cgroup::ContainerCgroup,
    descriptor_passing::message_pair,
};

use super::protocol::SandboxSpec;
use crate::container::{
    ContainerSpec, ProcessSpec,
    first_process::{ChildMessage, GO, StandardFiles, become_container, receive_message},
    spec::{CgroupSpec, MountSource, MountSpec, PidNamespace, RootSpec, UserSpec},
    user_namespace::{become_intermediate, create_user_namespace, receive_first_process},
};

/// The user of the pause process.
const PAUSE_USER: &str = "65535";
/// The index of the loopback link in every network namespace.
const LOOPBACK: u32 = 1;

/// Moves the calling process into the pod's namespaces. Returns the pod's user namespace, which the process does not enter.
pub fn enter_sandbox(spec: &SandboxSpec) -> io::Result<Option<OwnedFd>> {
    let mut namespaces = Namespaces::NONE;
    for (wanted, namespace) in
        [(spec.network, Namespaces::NETWORK), (spec.ipc, Namespaces::IPC), (spec.uts, Namespaces::UTS)]
    {
        if wanted {
            namespaces = namespaces.with(namespace);
        }
    }
    let users = match &spec.user_namespace {
        Some(users) => Some(create_user_namespace(users, namespaces)?),
        None if namespaces.is_empty() => None,
        None => clone::unshare_namespaces(namespaces).map(|()| None)?,
    };
    if spec.network {
        sys::net::set_link_up(LOOPBACK, true)?;
    }
    if spec.uts && !spec.hostname.is_empty() {
        rustix::system::sethostname(spec.hostname.as_bytes())?;
    }
    spec.sysctls.iter().try_for_each(|(name, value)| write_sysctl(name, value))?;
    Ok(users)
}

fn write_sysctl(name: &str, value: &str) -> io::Result<()> {
    // Both separators are in use; a name with slashes may contain dots.
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    if path.split('/').any(|part| part.is_empty() || part == "..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("sysctl {name:?} is not a name")));
    }
    let file = Path::new("/proc/sys").join(path);
    fs::write(&file, value).map_err(|error| io::Error::new(error.kind(), format!("sysctl {name}={value}: {error}")))
}

/// Starts the process that holds the shared PID namespace, in the pod's user namespace if it has one.
pub fn start_pause(spec: &SandboxSpec, root: &Path, users: Option<BorrowedFd<'_>>) -> io::Result<NewProcess> {
    let cgroup = spec.pause_cgroup.clone().unwrap_or_default();
    let pause = ContainerSpec {
        id: "pause".into(),
        root: RootSpec { path: root.to_owned(), overlay: None, read_only: true },
        mounts: vec![MountSpec {
            target: PathBuf::from("/proc"),
            source: MountSource::FileSystem { kind: "proc".into(), options: Vec::new() },
            set: 0,
            clear: 0,
            recursive: false,
            propagation: Default::default(),
            maps_owners: false,
        }],
        pid_namespace: PidNamespace::Own,
        cgroup: CgroupSpec { path: cgroup.clone(), private: false, devices: Vec::new() },
        process: ProcessSpec {
            arguments: vec!["/pause".into()],
            directory: "/".into(),
            user: UserSpec { user: PAUSE_USER.into(), group: Some(PAUSE_USER.into()), ..Default::default() },
            no_new_privileges: true,
            ..Default::default()
        },
        user_namespace: spec.user_namespace.clone(),
        ..Default::default()
    };
    let manager = CgroupManager::detect(Path::new("/sys/fs/cgroup")).map_err(io::Error::other)?;
    let group = ContainerCgroup::at(&manager, &cgroup);
    let (ours, theirs) = message_pair()?;
    let namespaces = if users.is_some() { Namespaces::NONE } else { Namespaces::MOUNT.with(Namespaces::PID) };
    let mut process = match clone::clone_process(namespaces, None)? {
        Cloned::Child => {
            drop(ours);
            // Its root has no devices.
            let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
            let files = StandardFiles { stdin: null(), stdout: null(), stderr: null() };
            match users {
                Some(users) => become_intermediate(&pause, &group, users, &files, &theirs),
                None => become_container(&pause, &files, &theirs, None),
            }
        }
        Cloned::Parent(process) => process,
    };
    drop(theirs);
    if users.is_some() {
        process = receive_first_process(&ours)?;
    }
    if !cgroup.is_empty() {
        group.attach(process.pid).map_err(io::Error::other)?;
    }
    sys::descriptor_passing::send_with_descriptors(&ours, GO, &[])?;
    wait_for_program(&ours)?;
    Ok(process)
}

/// Waits until the child has executed its program.
fn wait_for_program(socket: &OwnedFd) -> io::Result<()> {
    loop {
        match receive_message(socket, &mut Vec::new())? {
            Some(ChildMessage::Ready { .. } | ChildMessage::Cloned) => {}
            Some(ChildMessage::Failed(message)) => return Err(io::Error::other(message)),
            None => return Ok(()),
        }
    }
}
