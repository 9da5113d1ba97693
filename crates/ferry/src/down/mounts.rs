//! Unmounts everything below a directory: volumes, container file systems, network namespaces.

use std::path::{Path, PathBuf};

use sys::mount;

/// Unmounts them, the last one mounted first; says how many.
pub fn unmount_under(directory: &Path) -> anyhow::Result<String> {
    let mounts = mounts_under(directory)?;
    mounts.iter().try_for_each(|point| mount::unmount(point))?;
    Ok(if mounts.is_empty() { String::new() } else { format!("{} unmounted", mounts.len()) })
}

/// The mount points below a directory. The directory itself may be one: that is its owner's wish.
pub fn mounts_under(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut mounts = mount::mounts_under(directory)?;
    mounts.retain(|point| point != directory);
    Ok(mounts)
}
