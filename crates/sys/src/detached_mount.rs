//! Mounts by descriptor: a mount is made detached, configured, and then attached to an open directory or file.
//!
//! No path is resolved when it is attached, so that a symbolic link that appears meanwhile changes nothing.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
        fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
    },
};

/// A mount that is not attached yet; dropping it unmounts it.
#[derive(Debug)]
pub struct DetachedMount {
    tree: OwnedFd,
}

/// Attributes of mounts that are set or cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountAttributes {
    /// Bits to set.
    pub set: u64,
    /// Bits to clear.
    pub clear: u64,
    /// A propagation type (`MS_PRIVATE`, `MS_SLAVE`, `MS_SHARED`), or zero.
    pub propagation: u64,
}

impl MountAttributes {
    /// Read-only.
    pub const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
    /// Set-user-ID bits are ignored.
    pub const NO_SETUID: u64 = libc::MOUNT_ATTR_NOSUID;
    /// Devices cannot be opened.
    pub const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
    /// Programs cannot be executed.
    pub const NO_EXECUTION: u64 = libc::MOUNT_ATTR_NOEXEC;
    /// Access times are not updated.
    pub const NO_ACCESS_TIME: u64 = libc::MOUNT_ATTR_NOATIME;
    /// Access times of directories are not updated.
    pub const NO_DIRECTORY_ACCESS_TIME: u64 = libc::MOUNT_ATTR_NODIRATIME;
    /// Access times are always updated.
    pub const STRICT_ACCESS_TIME: u64 = libc::MOUNT_ATTR_STRICTATIME;
    /// The mask of all choices about access times; the zero value is `relatime`.
    pub const ACCESS_TIME_MASK: u64 = libc::MOUNT_ATTR__ATIME;
}

impl DetachedMount {
    /// Mounts a new file system. Options without a value are flags.
    pub fn new(kind: &str, options: &[(&str, Option<&str>)], attributes: u64) -> io::Result<Self> {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            match value {
                Some(value) => fsconfig_set_string(&context, *key, *value)?,
                None => fsconfig_set_flag(&context, *key)?,
            }
        }
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::from_bits_retain(attributes as u32);
        Ok(Self { tree: fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)? })
    }

    /// Clones the mount at a path, with those below it if `recursive`.
    pub fn clone_path(path: &Path, recursive: bool) -> io::Result<Self> {
        let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        if recursive {
            flags |= OpenTreeFlags::AT_RECURSIVE;
        }
        Ok(Self { tree: open_tree(CWD, path, flags)? })
    }

    /// Clones the mount of an open file or directory.
    pub fn clone_open(file: BorrowedFd<'_>, recursive: bool) -> io::Result<Self> {
        let mut flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        if recursive {
            flags |= OpenTreeFlags::AT_RECURSIVE;
        }
        Ok(Self { tree: open_tree(file, "", flags)? })
    }

    /// Changes attributes, of the mounts below too if `recursive`.
    pub fn set_attributes(&self, attributes: MountAttributes, recursive: bool) -> io::Result<()> {
        set_attributes(self.tree.as_fd(), attributes, recursive, None)
    }

    /// Maps the owners of files by a user namespace.
    pub fn map_owners(&self, user_namespace: BorrowedFd<'_>, recursive: bool) -> io::Result<()> {
        set_attributes(self.tree.as_fd(), MountAttributes::default(), recursive, Some(user_namespace))
    }

    /// Attaches the mount to an open directory or file.
    pub fn attach(self, target: BorrowedFd<'_>) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&self.tree, "", target, "", flags)?)
    }

    /// The root of the mount.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}

/// Changes attributes of the mount at an open directory or file.
pub fn set_mount_attributes(mount: BorrowedFd<'_>, attributes: MountAttributes, recursive: bool) -> io::Result<()> {
    set_attributes(mount, attributes, recursive, None)
}

#[allow(unsafe_code)]
fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttributes,
    recursive: bool,
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut argument = libc::mount_attr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation: attributes.propagation,
        userns_fd: 0,
    };
    if let Some(namespace) = user_namespace {
        argument.attr_set |= libc::MOUNT_ATTR_IDMAP;
        argument.userns_fd = namespace.as_raw_fd() as u64;
    }
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the structure has the size that is passed and outlives the call; the empty path names the descriptor.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const argument,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
