//! The root file system of a container, made in its own mount namespace.
//!
//! Every target is resolved in the root and mounted by descriptor: a link in the image or in a volume leads nowhere else.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid},
    io::Errno,
    mount::{MountPropagationFlags, UnmountFlags},
};
use sys::{
    beneath::{self, ContainerRoot, PathKind},
    container_cgroup::ContainerCgroup,
    detached_mount::{DetachedMount, MountAttributes, set_mount_attributes},
};

use super::{
    ContainerError, Operation,
    mount_sources::{clone_cgroups, clone_private, clone_source, mount_overlay},
    prepared_mounts::PreparedMounts,
    spec::{ContainerSpec, DeviceNode, MountSource, MountSpec},
};

/// Links that programs expect in `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
];
/// Paths below `/proc` that may be mount targets; any other would hide the kernel's own files.
const ALLOWED_IN_PROC: [&str; 10] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/slabinfo",
    "/proc/net/dev",
    "/proc/sys/kernel/ns_last_pid",
];

/// Makes the root file system and makes it `/` of the calling process, which is in a new mount namespace. `prepared` are the
/// mounts that were made with more privileges; none: all are made here. `before_pivot` runs while the host's file system is
/// still there.
pub fn enter_rootfs(
    spec: &ContainerSpec,
    cgroup: &ContainerCgroup,
    prepared: Option<PreparedMounts>,
    before_pivot: impl FnOnce() -> Result<(), ContainerError>,
) -> Result<(), ContainerError> {
    let is_prepared = prepared.is_some();
    let mut prepared = match prepared {
        Some(prepared) => prepared,
        None => PreparedMounts::shared_only(spec)?,
    };
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .during(|| "make mounts slaves of the host's".into())?;
    let root = match prepared.root.take() {
        // The working directory is where the root belongs, which may be beyond reach by its path.
        Some(tree) => attach_root(tree, Path::new("."))?,
        None => attach_root(clone_root(spec)?, &spec.root.path)?,
    };
    for (mount, source) in spec.mounts.iter().zip(prepared.sources) {
        let what = || format!("error mounting to {:?} in the container", mount.target.display().to_string());
        mount_one(&root, mount, source, (cgroup, &mut prepared.cgroups))
            .map_err(|error| ContainerError::Invalid(format!("{}: {error}", what())))?;
    }
    match is_prepared {
        true => bind_devices(&root, &spec.devices, prepared.devices)?,
        false => make_devices(&root, &spec.devices)?,
    }
    before_pivot()?;
    if spec.root.read_only {
        let attributes = MountAttributes { set: MountAttributes::READ_ONLY, ..Default::default() };
        set_mount_attributes(root.descriptor().as_fd(), attributes, false)
            .during(|| "make the root read-only".into())?;
    }
    pivot_root(root.descriptor())?;
    check_proc(spec)?;
    spec.readonly_paths.iter().try_for_each(|path| make_read_only(path))?;
    spec.masked_paths.iter().try_for_each(|path| mask_path(path))
}

/// The root's layers, or its directory.
fn clone_root(spec: &ContainerSpec) -> Result<DetachedMount, ContainerError> {
    let path = &spec.root.path;
    match &spec.root.overlay {
        Some(overlay) => mount_overlay(overlay),
        None => clone_private(path),
    }
}

fn attach_root(tree: DetachedMount, path: &Path) -> Result<ContainerRoot, ContainerError> {
    let target = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let target = target.during(|| format!("open {}", path.display()))?;
    let root = tree.root().try_clone_to_owned().during(|| "keep the root open".into())?;
    tree.attach(target.as_fd()).during(|| format!("mount the root at {}", path.display()))?;
    Ok(ContainerRoot::from_descriptor(root))
}

fn mount_one(
    root: &ContainerRoot,
    mount: &MountSpec,
    prepared: Option<DetachedMount>,
    (cgroup, clones): (&ContainerCgroup, &mut Vec<DetachedMount>),
) -> Result<(), ContainerError> {
    refuse_in_proc(mount)?;
    let target =
        |kind| root.create_path(&mount.target, kind).during(|| format!("cannot make {}", mount.target.display()));
    match &mount.source {
        MountSource::FileSystem { kind, options } => {
            let target = target(PathKind::Directory)?;
            if kind == "proc" || kind == "sysfs" {
                refuse_link(root, &mount.target)?;
            }
            let options: Vec<_> = options.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
            let made = DetachedMount::new(kind, &options, mount.set).during(|| format!("mount {kind}"))?;
            made.attach(target.as_fd()).during(|| format!("mount {kind}"))?;
            if kind == "tmpfs" && mount.target == Path::new("/dev") {
                make_device_links(root)?;
            }
            Ok(())
        }
        MountSource::Cgroup => mount_cgroups(root, mount, cgroup, clones),
        source => {
            let tree = match prepared {
                Some(tree) => tree,
                None => clone_source(mount)?,
            };
            if matches!(source, MountSource::ImageVolume { .. }) {
                fill_volume(root, &mount.target, &tree)?;
            }
            let target = target(tree_kind(&tree)?)?;
            tree.attach(target.as_fd()).during(|| "attach the mount".into())
        }
    }
}

fn tree_kind(tree: &DetachedMount) -> Result<PathKind, ContainerError> {
    let stat = rustix::fs::fstat(tree.root()).during(|| "read the mount's source".into())?;
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Ok(if directory { PathKind::Directory } else { PathKind::Other })
}

fn refuse_in_proc(mount: &MountSpec) -> Result<(), ContainerError> {
    let target = normalized(&mount.target);
    let is_proc = matches!(&mount.source, MountSource::FileSystem { kind, .. } if kind == "proc");
    let is_allowed = ALLOWED_IN_PROC.iter().any(|allowed| target == Path::new(allowed));
    if !target.starts_with("/proc") || (target == Path::new("/proc") && is_proc) || is_allowed {
        return Ok(());
    }
    // The whole of the host's proc may be bound, by those who may mount the host.
    if let MountSource::Bind { path, .. } = &mount.source
        && target == Path::new("/proc")
        && rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == PROC_MAGIC)
    {
        return Ok(());
    }
    Err(ContainerError::Invalid(format!("{} cannot be mounted because it is inside /proc", target.display())))
}

const PROC_MAGIC: rustix::fs::FsWord = 0x9fa0;

/// The path without `.` and `..`, as text.
fn normalized(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => clean.push(name),
            std::path::Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    clean
}

/// `/proc` and `/sys` must be directories of the image, not links of its choice.
fn refuse_link(root: &ContainerRoot, target: &Path) -> Result<(), ContainerError> {
    let relative = target.strip_prefix("/").unwrap_or(target);
    let stat = rustix::fs::statat(root.descriptor(), relative, AtFlags::SYMLINK_NOFOLLOW)
        .during(|| target.display().to_string())?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(()),
        _ => Err(ContainerError::Invalid(format!("{} must be a directory of the image", target.display()))),
    }
}

/// After the change of root, `/proc` is the kernel's: what follows writes through it.
fn check_proc(spec: &ContainerSpec) -> Result<(), ContainerError> {
    let mounts_proc =
        spec.mounts.iter().any(|mount| matches!(&mount.source, MountSource::FileSystem { kind, .. } if kind == "proc"));
    if !mounts_proc {
        return Ok(());
    }
    let stat = rustix::fs::statfs("/proc").during(|| "/proc".into())?;
    if stat.f_type == PROC_MAGIC {
        Ok(())
    } else {
        Err(ContainerError::Invalid("/proc is not a proc file system".into()))
    }
}

fn make_device_links(root: &ContainerRoot) -> Result<(), ContainerError> {
    for (name, target) in DEVICE_LINKS {
        match rustix::fs::symlinkat(target, root.descriptor(), name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).during(|| format!("link /{name}")),
        }
    }
    Ok(())
}

fn make_devices(root: &ContainerRoot, devices: &[DeviceNode]) -> Result<(), ContainerError> {
    for device in devices {
        let what = || format!("make the device {}", device.path.display());
        let (Some(parent), Some(name)) = (device.path.parent(), device.path.file_name()) else { continue };
        let parent = root.create_path(parent, PathKind::Directory).during(what)?;
        let kind = FileType::from_raw_mode(device.mode);
        let number = rustix::fs::makedev(device.major, device.minor);
        match rustix::fs::mknodat(&parent, name, kind, Mode::from_raw_mode(device.mode & 0o7777), number) {
            Ok(()) => {}
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(errno).during(what),
        }
        let owner = (Some(Uid::from_raw(device.uid)), Some(Gid::from_raw(device.gid)));
        rustix::fs::chownat(&parent, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW).during(what)?;
        // The umask took bits away.
        let node = rustix::fs::openat(&parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let node = node.during(what)?;
        rustix::fs::chmod(beneath::descriptor_path(&node), Mode::from_raw_mode(device.mode & 0o7777)).during(what)?;
    }
    Ok(())
}

/// In a user namespace no device can be made: those of the host are bound.
fn bind_devices(
    root: &ContainerRoot,
    devices: &[DeviceNode],
    clones: Vec<DetachedMount>,
) -> Result<(), ContainerError> {
    for (device, clone) in devices.iter().zip(clones) {
        let what = || format!("bind the device {}", device.path.display());
        let target = root.create_path(&device.path, PathKind::Other).during(what)?;
        clone.attach(target.as_fd()).during(what)?;
    }
    Ok(())
}

/// Version 1: a directory per controller with the container's own group; version 2: the tree itself.
fn mount_cgroups(
    root: &ContainerRoot,
    mount: &MountSpec,
    cgroup: &ContainerCgroup,
    clones: &mut Vec<DetachedMount>,
) -> Result<(), ContainerError> {
    let what = || "mount control groups".to_owned();
    let target = root.create_path(&mount.target, PathKind::Directory).during(what)?;
    if cgroup.is_unified() {
        let tree = match DetachedMount::new("cgroup2", &[("nsdelegate", None)], mount.set) {
            Ok(tree) => tree,
            // In a user namespace without a control group namespace: the host's tree is bound.
            Err(_) => DetachedMount::clone_path(&cgroup.directories()[0].1, false).during(what)?,
        };
        let attributes = MountAttributes { set: mount.set, ..Default::default() };
        tree.set_attributes(attributes, false).during(what)?;
        return tree.attach(target.as_fd()).during(what);
    }
    let flags = mount.set & !MountAttributes::READ_ONLY;
    let tmpfs = DetachedMount::new("tmpfs", &[("mode", Some("755"))], flags).during(what)?;
    tmpfs.attach(target.as_fd()).during(what)?;
    if clones.is_empty() {
        *clones = clone_cgroups(mount, cgroup)?;
    }
    for ((name, _), tree) in cgroup.directories().iter().zip(clones.drain(..)) {
        let place = root.create_path(&mount.target.join(name), PathKind::Directory).during(what)?;
        tree.attach(place.as_fd()).during(what)?;
    }
    if mount.set & MountAttributes::READ_ONLY != 0 {
        let top = root.open_path(&mount.target, OFlags::PATH).during(what)?;
        let attributes = MountAttributes { set: MountAttributes::READ_ONLY, ..Default::default() };
        set_mount_attributes(top.as_fd(), attributes, false).during(what)?;
    }
    Ok(())
}

/// Copies the image's content to a new volume.
fn fill_volume(root: &ContainerRoot, target: &Path, volume: &DetachedMount) -> Result<(), ContainerError> {
    let what = || format!("fill the volume {}", target.display());
    let source = match root.open_path(target, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).during(what),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let copy = rustix::fs::openat(volume.root(), ".", flags, Mode::empty()).during(what)?;
    let mut entries = rustix::fs::Dir::read_from(&copy).during(what)?;
    let has_content =
        entries.any(|entry| entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")));
    if has_content {
        return Ok(());
    }
    crate::tree_copy::copy_tree(&source, &copy).during(what)
}

/// Makes the new root `/` and lets go of the old one.
fn pivot_root(root: &OwnedFd) -> Result<(), ContainerError> {
    rustix::process::fchdir(root).during(|| "enter the new root".into())?;
    rustix::process::pivot_root(".", ".").during(|| "pivot_root".into())?;
    // The old root is on top of the new one now. Its mounts are slaves, so that its end does not travel to the host.
    rustix::mount::unmount(".", UnmountFlags::DETACH).during(|| "unmount the old root".into())?;
    rustix::process::chdir("/").during(|| "enter /".into())
}

fn open_existing(path: &str) -> Result<Option<OwnedFd>, ContainerError> {
    match rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(errno) => Err(errno).during(|| path.to_owned()),
    }
}

fn make_read_only(path: &str) -> Result<(), ContainerError> {
    let Some(file) = open_existing(path)? else { return Ok(()) };
    let what = || format!("make {path} read-only");
    let tree = DetachedMount::clone_open(file.as_fd(), true).during(what)?;
    let attributes = MountAttributes { set: MountAttributes::READ_ONLY, ..Default::default() };
    tree.set_attributes(attributes, true).during(what)?;
    tree.attach(file.as_fd()).during(what)
}

/// Hides a file behind `/dev/null`, a directory behind an empty one.
fn mask_path(path: &str) -> Result<(), ContainerError> {
    let Some(file) = open_existing(path)? else { return Ok(()) };
    let what = || format!("mask {path}");
    let mask = match beneath::path_kind(&file).during(what)? {
        PathKind::Directory => DetachedMount::new("tmpfs", &[("nr_inodes", Some("2"))], MountAttributes::READ_ONLY),
        PathKind::Other => {
            check_null_device(what)?;
            DetachedMount::clone_path(Path::new("/dev/null"), false)
        }
    };
    mask.during(what)?.attach(file.as_fd()).during(what)
}

/// A `/dev/null` that the image or a volume replaced must not be mounted over the kernel's files.
fn check_null_device(what: impl Fn() -> String) -> Result<(), ContainerError> {
    let stat = rustix::fs::stat("/dev/null").during(&what)?;
    let is_null =
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == rustix::fs::makedev(1, 3);
    if is_null { Ok(()) } else { Err(ContainerError::Invalid(format!("{}: /dev/null is not the null device", what()))) }
}
