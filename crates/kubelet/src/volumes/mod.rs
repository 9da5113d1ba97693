//! The volumes of a pod on this node: made before its sandbox, refreshed while it runs, removed when it has ended.
//!
//! Everything lives below `pods/<uid>` of the kubelet's directory, named as upstream names it.

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

use crate::{objects::Missing, quantity};

pub mod atomic;
pub mod content;
mod host_path;

/// Why a volume could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// On which path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] sys::mount::Error),
    /// What the volume shows is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// No token for a service account.
    #[error("failed to fetch token for service account {account:?}: {source}")]
    Token {
        /// The account.
        account: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// Something that cannot be shown.
    #[error("{0}")]
    Unsupported(String),
}

/// The tokens of one pod, by volume and path, with the time from which they are renewed.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<String, (String, Timestamp)>>);

impl Tokens {
    fn get(&self, key: &str, now: Timestamp) -> Option<String> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(key).filter(|(_, renew)| now < *renew).map(|(token, _)| token.clone())
    }

    fn put(&self, key: String, token: String, renew: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (token, renew));
    }
}

/// The directory of one pod.
#[derive(Clone, Debug)]
pub struct PodDir(PathBuf);

impl PodDir {
    /// The directory of the pod `uid` below `root`, the kubelet's own.
    pub fn new(root: &Path, uid: &str) -> Self {
        Self(root.join("pods").join(uid))
    }

    /// The path itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a volume is on this node.
    pub fn volume(&self, volume: &Volume) -> PathBuf {
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

    /// Makes or refreshes one volume.
    pub async fn prepare(&self, volume: &Volume, gather: &content::Gather<'_>) -> Result<(), Error> {
        let path = self.volume(volume);
        let at = |source| Error::Io { path: path.clone(), source };
        if let Some(source) = &volume.host_path {
            return host_path::prepare(source).map_err(at);
        }
        let group = fs_group(gather.pod);
        if let Some(files) = gather.files(volume).await? {
            let in_memory = volume.secret.is_some() || volume.projected.is_some();
            self.content_dir(&path, in_memory)?;
            return atomic::write(&path, &files, group).map_err(at);
        }
        self.empty_dir(volume, &path, group)
    }

    /// Secrets never reach a disk: they are in a file system in memory.
    fn content_dir(&self, path: &Path, in_memory: bool) -> Result<(), Error> {
        fs::create_dir_all(path).map_err(|source| Error::Io { path: path.into(), source })?;
        if in_memory && sys::mount::mounts_under(path)?.is_empty() {
            sys::mount::tmpfs(path, None, 0o777)?;
        }
        Ok(())
    }

    fn empty_dir(&self, volume: &Volume, path: &Path, group: Option<u32>) -> Result<(), Error> {
        if path.exists() {
            return Ok(());
        }
        let at = |source| Error::Io { path: path.into(), source };
        fs::create_dir_all(path).map_err(at)?;
        let source = volume.empty_dir.clone().unwrap_or_default();
        if source.medium.as_deref() == Some("Memory") {
            let size = source.size_limit.as_ref().map(|limit| quantity::value(limit) as u64);
            sys::mount::tmpfs(path, size, 0o777)?;
        }
        let setgid = if group.is_some() { 0o2000 } else { 0 };
        chown(path, None, group).map_err(at)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777 | setgid)).map_err(at)
    }

    /// Unmounts and removes everything of the pod. Doing it twice is no error.
    pub fn remove(&self) -> Result<(), Error> {
        sys::mount::unmount_all(&self.0)?;
        match fs::remove_dir_all(&self.0) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Io { path: self.0.clone(), source }),
            _ => Ok(()),
        }
    }
}

/// The uids of the pods that have a directory below `root`.
pub fn pods_on_disk(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("pods")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}
