//! `subPath` mounts: a bind mount of what the path names below its volume.
//!
//! Guarantee: the container gets a file or directory of the volume, also if another container replaces directories by
//! symbolic links meanwhile: the path is opened once and the open file is mounted.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use sys::{
    beneath::{BoundedRoot, PathKind, descriptor_path, path_kind, permission_bits},
    mount::MountError,
};

use super::PodDir;

/// A subPath could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// The path is absolute or has `..`.
    #[error("must not be an absolute path or contain '..': {0:?}")]
    Invalid(String),
    /// The path leaves the volume, is missing, or cannot be created.
    #[error("failed to prepare subPath {path:?}: {source}")]
    Path {
        /// The path in the volume.
        path: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The bind mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// A subPath of a container's mount.
pub struct SubPathMount<'a> {
    /// Host path of the volume.
    pub volume_path: &'a Path,
    /// Name of the volume in the pod.
    pub volume: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// Position of the mount in the container.
    pub index: usize,
    /// The path in the volume.
    pub path: &'a str,
    /// Whether missing directories are created.
    pub create: bool,
}

impl SubPathMount<'_> {
    /// Mounts the path below the pod's directory and returns the mount point. Blocks.
    pub fn mount(&self, dir: &PodDir) -> Result<PathBuf, SubPathError> {
        let path = Path::new(self.path);
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(SubPathError::Invalid(self.path.into()));
        }
        let failed = |source| SubPathError::Path { path: self.path.into(), source };
        let root = BoundedRoot::open(self.volume_path).map_err(failed)?;
        let file = match root.open_path(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.create => {
                let mode = root.open_path(Path::new("")).and_then(|root| permission_bits(&root)).map_err(failed)?;
                root.create_dirs(path, mode & 0o777).map_err(failed)?
            }
            opened => opened.map_err(failed)?,
        };
        let target = dir.subpath_target(self.volume, self.container, self.index);
        // A mount of an earlier container may show an older file.
        sys::mount::unmount_idle(&target)?;
        create_target(&target, path_kind(&file).map_err(failed)?).map_err(failed)?;
        sys::mount::bind_mount(&descriptor_path(&file), &target, false)?;
        Ok(target)
    }
}

/// Creates the mount point, of the kind that the kernel asks for.
fn create_target(target: &Path, kind: PathKind) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    let existing = fs::symlink_metadata(target).map(|meta| meta.is_dir());
    match (kind, existing) {
        (PathKind::Directory, Ok(true)) | (PathKind::Other, Ok(false)) => Ok(()),
        (PathKind::Directory, Ok(false)) => fs::remove_file(target).and_then(|()| fs::create_dir(target)),
        (PathKind::Other, Ok(true)) => fs::remove_dir(target).and_then(|()| fs::File::create(target).map(drop)),
        (PathKind::Directory, Err(_)) => fs::create_dir(target),
        (PathKind::Other, Err(_)) => fs::File::create(target).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_out_of_the_volume_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        symlink("/etc", volume.join("etc")).unwrap();
        symlink("..", volume.join("up")).unwrap();
        let pod = PodDir::new(&dir.path().join("root"), "uid");
        for path in ["../x", "/etc", "a/../../x", "etc", "etc/passwd", "up/x", "up/volume2"] {
            let mount =
                SubPathMount { volume_path: &volume, volume: "v", container: "c", index: 0, path, create: true };
            assert!(mount.mount(&pod).is_err(), "{path}");
        }
        assert!(!dir.path().join("x").exists() && !dir.path().join("volume2").exists());
    }
}
