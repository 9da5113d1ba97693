//! Mounts: tmpfs, bind mounts, the mount table.

use std::{
    ffi::CString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// A mount operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct MountError {
    /// The operation.
    pub operation: &'static str,
    /// The path.
    pub path: PathBuf,
    /// The I/O error.
    pub source: io::Error,
}

/// Mounts a tmpfs on `target`, limited to `size` bytes if given.
pub fn mount_tmpfs(target: &Path, size: Option<u64>, mode: u32) -> Result<(), MountError> {
    let mut options = format!("mode={mode:o}");
    if let Some(size) = size {
        options.push_str(&format!(",size={size}"));
    }
    let failed = |source: io::Error| MountError { operation: "mount a tmpfs on", path: target.into(), source };
    let options = CString::new(options).map_err(|error| failed(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", target, c"tmpfs", flags, &*options).map_err(|errno| failed(errno.into()))
}

/// Bind-mounts `source` recursively at `target`.
pub fn bind_mount(source: &Path, target: &Path, read_only: bool) -> Result<(), MountError> {
    let failed = |errno: rustix::io::Errno| MountError {
        operation: "bind a mount to",
        path: target.into(),
        source: errno.into(),
    };
    rustix::mount::mount_bind_recursive(source, target).map_err(failed)?;
    rustix::mount::mount_change(target, MountPropagationFlags::PRIVATE).map_err(failed)?;
    if !read_only {
        return Ok(());
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    rustix::mount::mount_remount(target, flags, c"").map_err(failed)
}

/// Mounts huge pages of `page_size` bytes on `target`, limited to `size` bytes if given.
pub fn mount_hugetlbfs(target: &Path, page_size: u64, size: Option<u64>) -> Result<(), MountError> {
    let limit = size.map(|size| format!(",size={size}")).unwrap_or_default();
    let options = format!("pagesize={page_size}{limit}");
    let failed = |source: io::Error| MountError { operation: "mount huge pages on", path: target.into(), source };
    let options = CString::new(options).map_err(|error| failed(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"hugetlbfs", target, c"hugetlbfs", flags, &*options).map_err(|errno| failed(errno.into()))
}

/// Whether `path` is a mount point.
pub fn is_mount_point(path: &Path) -> Result<bool, MountError> {
    Ok(mounts_under(path)?.iter().any(|point| point == path))
}

/// Unmounts everything at and below `path`. A busy mount is an error: what holds it may still write.
pub fn unmount_idle(path: &Path) -> Result<(), MountError> {
    let unmount = |point: &PathBuf| match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(MountError { operation: "unmount", path: point.clone(), source: errno.into() }),
    };
    mounts_under(path)?.iter().try_for_each(unmount)
}

/// Unmounts `target`, lazily if it is busy. A path that is not mounted is not an error.
pub fn unmount(target: &Path) -> Result<(), MountError> {
    let mut result = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW);
    if result == Err(rustix::io::Errno::BUSY) {
        result = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    }
    match result {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(MountError { operation: "unmount", path: target.into(), source: errno.into() }),
    }
}

/// Lists the mount points at and below `path`, in unmount order.
pub fn mounts_under(path: &Path) -> Result<Vec<PathBuf>, MountError> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read(table).map_err(|source| MountError { operation: "read", path: table.into(), source })?;
    let mut points = parse_mount_points(&text);
    points.retain(|point| point.starts_with(path));
    points.reverse();
    Ok(points)
}

/// Parses the mount points (fifth field) of `mountinfo`.
fn parse_mount_points(table: &[u8]) -> Vec<PathBuf> {
    let field = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(unescape_octal);
    table.split(|byte| *byte == b'\n').filter_map(field).collect()
}

/// Decodes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape_octal(field: &[u8]) -> PathBuf {
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
    fn mount_points_are_parsed_and_unescaped() {
        let table = b"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / /a\\040b rw,nosuid shared:1 - tmpfs tmpfs rw\n\n";
        assert_eq!(parse_mount_points(table), [PathBuf::from("/"), PathBuf::from("/a b")]);
    }

    #[test]
    fn unmounted_directory_needs_no_unmount() {
        let dir = tempfile::tempdir().unwrap();
        assert!(mounts_under(dir.path()).unwrap().is_empty());
        unmount_idle(dir.path()).unwrap();
    }
}
