//! Ownership of volumes by the pod's `fsGroup`.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// When the ownership of a volume is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePolicy {
    /// At every set-up.
    Always,
    /// Only if the volume's root does not have the group and permissions yet.
    OnRootMismatch,
}

/// Gives the volume to the group.
pub fn set_volume_ownership(path: &Path, group: u32, policy: ChangePolicy) -> io::Result<()> {
    if policy == ChangePolicy::OnRootMismatch && has_ownership(path, group)? {
        return Ok(());
    }
    sys::beneath::set_tree_group(path, group, false)
}

fn has_ownership(path: &Path, group: u32) -> io::Result<bool> {
    let root = fs::metadata(path)?;
    Ok(root.gid() == group && root.mode() & 0o2770 == 0o2770)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn matching_root_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (file, group) = (dir.path().join("file"), fs::metadata(dir.path()).unwrap().gid());
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2770)).unwrap();
        let mode = || fs::metadata(&file).unwrap().mode() & 0o777;
        set_volume_ownership(dir.path(), group, ChangePolicy::OnRootMismatch).unwrap();
        assert_eq!(mode(), 0o600);
        set_volume_ownership(dir.path(), group, ChangePolicy::Always).unwrap();
        assert_eq!(mode(), 0o660);
    }
}
