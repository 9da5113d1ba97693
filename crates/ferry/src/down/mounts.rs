//! Unmounts everything below a directory: volumes, container file systems, network namespaces.

use std::{
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use rustix::mount::{UnmountFlags, unmount};

/// Unmounts them, the last one mounted first; says how many.
pub fn unmount_under(directory: &Path) -> anyhow::Result<String> {
    let mounts = under(directory).context("/proc/self/mountinfo")?;
    for mount in mounts.iter().rev() {
        match unmount(mount, UnmountFlags::DETACH) {
            // Gone with the one above it.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(io::Error::from(error)).context(mount.display().to_string()),
        }
    }
    Ok(if mounts.is_empty() { String::new() } else { format!("{} unmounted", mounts.len()) })
}

/// The mount points below a directory, in the order in which they were mounted. The directory itself may be one.
pub fn under(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(parse(&table, directory))
}

fn parse(table: &[u8], directory: &Path) -> Vec<PathBuf> {
    let places = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let paths = places.map(|place| PathBuf::from(std::ffi::OsString::from_vec(unescape(place))));
    paths
        .filter(|path| path.starts_with(directory) && path.as_os_str().as_bytes() != directory.as_os_str().as_bytes())
        .collect()
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(place: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(place.len());
    let mut rest = place;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                plain.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_is_found() {
        let table = b"1 0 8:1 / / rw - ext4 x rw\n2 1 0:5 / /data rw - tmpfs x rw\n3 2 0:6 / /data/a\\040b rw - tmpfs x rw\n4 1 0:7 / /database rw - tmpfs x rw\n";
        assert_eq!(parse(table, Path::new("/data")), [PathBuf::from("/data/a b")]);
    }
}
