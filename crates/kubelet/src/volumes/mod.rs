//! Pod volumes: set up before the sandbox, refreshed while the pod runs, removed afterwards.
//!
//! They are below `pods/<uid>` of the kubelet's root directory, with upstream's names.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Pod, Volume},
    jiff::Timestamp,
};

use self::atomic_writer::VolumeFiles;
use crate::{blocking::run_blocking, config_objects::ObjectReferenceError, quantity};

pub mod atomic_writer;
pub mod content;
mod host_path;

/// A volume could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] sys::mount::MountError),
    /// A referenced object is missing.
    #[error(transparent)]
    Missing(#[from] ObjectReferenceError),
    /// No service account token was issued.
    #[error("failed to fetch token for service account {account:?}: {source}")]
    Token {
        /// The service account.
        account: String,
        /// The client error.
        source: Box<kube::Error>,
    },
    /// The content is unsupported.
    #[error("{0}")]
    Unsupported(String),
}

/// Tokens of one pod by volume and path, with their renewal time.
#[derive(Default)]
pub struct TokenCache(Mutex<HashMap<String, (String, Timestamp)>>);

impl TokenCache {
    fn get(&self, key: &str, now: Timestamp) -> Option<String> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(key).filter(|(_, renew)| now < *renew).map(|(token, _)| token.clone())
    }

    fn insert(&self, key: String, token: String, renew: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (token, renew));
    }
}

/// The directory of a pod.
#[derive(Clone, Debug)]
pub struct PodDir(PathBuf);

impl PodDir {
    /// Returns the directory of pod `uid` below `root`.
    pub fn new(root: &Path, uid: &str) -> Self {
        Self(root.join("pods").join(uid))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the host path of a volume.
    pub fn volume_path(&self, volume: &Volume) -> PathBuf {
        if let Some(source) = &volume.host_path {
            return source.path.clone().into();
        }
        let kind = match volume {
            Volume { config_map: Some(_), .. } => "configmap",
            Volume { secret: Some(_), .. } => "secret",
            Volume { downward_api: Some(_), .. } => "downward-api",
            Volume { projected: Some(_), .. } => "projected",
            _ => "empty-dir",
        };
        self.0.join("volumes").join(format!("kubernetes.io~{kind}")).join(&volume.name)
    }

    /// Sets up or refreshes a volume.
    pub async fn prepare_volume(
        &self,
        volume: &Volume,
        content: &content::VolumeContent<'_>,
    ) -> Result<(), VolumeError> {
        let files = match volume.host_path {
            Some(_) => None,
            None => content.collect_files(volume).await?,
        };
        let (dir, volume, group) = (self.clone(), volume.clone(), fs_group(content.pod));
        run_blocking(move || dir.write_volume(&volume, files, group)).await
    }

    /// Writes a volume to the file system. Blocks.
    fn write_volume(&self, volume: &Volume, files: Option<VolumeFiles>, group: Option<u32>) -> Result<(), VolumeError> {
        let path = self.volume_path(volume);
        let at = |source| VolumeError::Io { path: path.clone(), source };
        if let Some(source) = &volume.host_path {
            return host_path::prepare_host_path(source).map_err(at);
        }
        if let Some(files) = files {
            let in_memory = volume.secret.is_some() || volume.projected.is_some();
            self.create_content_dir(&path, in_memory)?;
            return atomic_writer::write_files(&path, &files, group).map_err(at);
        }
        self.create_empty_dir(volume, &path, group)
    }

    /// Creates the directory; secrets and tokens are on a tmpfs, never on disk.
    fn create_content_dir(&self, path: &Path, in_memory: bool) -> Result<(), VolumeError> {
        fs::create_dir_all(path).map_err(|source| VolumeError::Io { path: path.into(), source })?;
        if in_memory && sys::mount::mounts_under(path)?.is_empty() {
            sys::mount::mount_tmpfs(path, None, 0o777)?;
        }
        Ok(())
    }

    fn create_empty_dir(&self, volume: &Volume, path: &Path, group: Option<u32>) -> Result<(), VolumeError> {
        if path.exists() {
            return Ok(());
        }
        let at = |source| VolumeError::Io { path: path.into(), source };
        fs::create_dir_all(path).map_err(at)?;
        let source = volume.empty_dir.clone().unwrap_or_default();
        if source.medium.as_deref() == Some("Memory") {
            let size = source.size_limit.as_ref().map(|limit| quantity::to_units(limit) as u64);
            sys::mount::mount_tmpfs(path, size, 0o777)?;
        }
        let setgid = if group.is_some() { 0o2000 } else { 0 };
        chown(path, None, group).map_err(at)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777 | setgid)).map_err(at)
    }

    /// Unmounts and removes the pod's directory. Idempotent.
    pub fn remove_all(&self) -> Result<(), VolumeError> {
        sys::mount::unmount_all(&self.0)?;
        match fs::remove_dir_all(&self.0) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(VolumeError::Io { path: self.0.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

/// Lists the uids of pods with a directory below `root`.
pub fn list_pods_on_disk(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("pods")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}
