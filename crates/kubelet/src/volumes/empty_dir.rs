//! `emptyDir` volumes on disk, in memory or on huge pages.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;

use super::VolumeError;
use crate::quantity;

/// Name of the default huge page size's medium.
const HUGE_PAGES: &str = "HugePages";

/// Creates the directory and mounts its medium, also again after a reboot.
pub fn create_empty_dir(source: &EmptyDirVolumeSource, path: &Path, group: Option<u32>) -> Result<(), VolumeError> {
    let at = |source| VolumeError::Io { path: path.into(), source };
    let medium = source.medium.as_deref().unwrap_or_default();
    let mounted = sys::mount::is_mount_point(path)?;
    if path.exists() && (mounted || medium.is_empty()) {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(at)?;
    let size = source.size_limit.as_ref().map(|limit| quantity::to_units(limit) as u64).filter(|size| *size > 0);
    match medium {
        "" => {}
        "Memory" => sys::mount::mount_tmpfs(path, size, 0o777)?,
        _ => sys::mount::mount_hugetlbfs(path, page_size(medium)?, size)?,
    }
    let setgid = if group.is_some() { 0o2000 } else { 0 };
    chown(path, None, group).map_err(at)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777 | setgid)).map_err(at)
}

/// Returns the page size of a medium such as `HugePages-2Mi`, or the machine's default for `HugePages`.
fn page_size(medium: &str) -> Result<u64, VolumeError> {
    let unsupported = || VolumeError::Unsupported(format!("unknown storage medium {medium:?}"));
    if medium == HUGE_PAGES {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        return kib.map(|kib| kib * 1024).ok_or_else(unsupported);
    }
    let size = medium.strip_prefix("HugePages-").ok_or_else(unsupported)?;
    let size = quantity::to_units(&k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.into()));
    u64::try_from(size).ok().filter(|size| *size > 0).ok_or_else(unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medium_names_the_page_size() {
        assert_eq!(page_size("HugePages-2Mi").unwrap(), 2 << 20);
        assert_eq!(page_size("HugePages-1Gi").unwrap(), 1 << 30);
        assert!(page_size("Floppy").is_err());
    }

    #[test]
    fn directory_is_open_to_all_users() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        create_empty_dir(&EmptyDirVolumeSource::default(), &path, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
    }
}
