//! Mounts: temporary file systems and binds, and what is mounted where.
//!
//! Every error names the operation and the path.

use std::{
    ffi::CString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// A mount operation that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct Error {
    /// What was tried.
    pub operation: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// Mounts a file system in memory on the directory `target`; `size` in bytes limits it.
pub fn tmpfs(target: &Path, size: Option<u64>, mode: u32) -> Result<(), Error> {
    let mut options = format!("mode={mode:o}");
    if let Some(size) = size {
        options.push_str(&format!(",size={size}"));
    }
    let failed = |source: io::Error| Error { operation: "mount a tmpfs on", path: target.into(), source };
    let options = CString::new(options).map_err(|error| failed(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", target, c"tmpfs", flags, &*options).map_err(|errno| failed(errno.into()))
}

/// Shows `source` at `target` too, with what is mounted below it.
pub fn bind(source: &Path, target: &Path, read_only: bool) -> Result<(), Error> {
    let failed =
        |errno: rustix::io::Errno| Error { operation: "bind a mount to", path: target.into(), source: errno.into() };
    rustix::mount::mount_bind_recursive(source, target).map_err(failed)?;
    rustix::mount::mount_change(target, MountPropagationFlags::PRIVATE).map_err(failed)?;
    if !read_only {
        return Ok(());
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    rustix::mount::mount_remount(target, flags, c"").map_err(failed)
}

/// Unmounts `target`: at once, or as soon as nobody uses it. What is not mounted is no error.
pub fn unmount(target: &Path) -> Result<(), Error> {
    let mut result = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW);
    if result == Err(rustix::io::Errno::BUSY) {
        result = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    }
    match result {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error { operation: "unmount", path: target.into(), source: errno.into() }),
    }
}

/// The mount points at `path` and below it, the latest first: the order in which to unmount them.
pub fn mounts_under(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read(table).map_err(|source| Error { operation: "read", path: table.into(), source })?;
    let mut points = mount_points(&text);
    points.retain(|point| point.starts_with(path));
    points.reverse();
    Ok(points)
}

/// Unmounts everything at `path` and below it.
pub fn unmount_all(path: &Path) -> Result<(), Error> {
    mounts_under(path)?.iter().try_for_each(|point| unmount(point))
}

/// The fifth field of every line of `mountinfo`.
fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    let field = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(unescape);
    table.split(|byte| *byte == b'\n').filter_map(field).collect()
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_the_kernel_writes_them() {
        let table = b"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / /a\\040b rw,nosuid shared:1 - tmpfs tmpfs rw\n\n";
        assert_eq!(mount_points(table), [PathBuf::from("/"), PathBuf::from("/a b")]);
    }

    #[test]
    fn what_is_not_mounted_needs_no_unmount() {
        let dir = tempfile::tempdir().unwrap();
        assert!(mounts_under(dir.path()).unwrap().is_empty());
        unmount_all(dir.path()).unwrap();
    }
}
