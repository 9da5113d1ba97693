//! Pod volumes: set up before the sandbox, refreshed while the pod runs, removed afterwards.
//!
//! They are below `pods/<uid>` of the kubelet's root directory, with upstream's names.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Pod, Volume},
    jiff::Timestamp,
};
use tokio::sync::Notify;

use self::{
    atomic_writer::VolumeFiles,
    source::{ClaimError, ResolvedVolume, VolumeSource},
};
use crate::{
    blocking::run_blocking, config_objects::ObjectReferenceError, object_cache::ObjectChanges,
    pod_metadata::pod_namespace,
};

pub mod atomic_writer;
pub mod content;
mod empty_dir;
mod host_path;
mod nfs;
mod ownership;
pub mod source;
pub mod subpath;

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
    /// A claim could not be resolved.
    #[error("error processing PVC {claim}: {source}")]
    Claim {
        /// Namespace and name of the claim.
        claim: String,
        /// The cause.
        source: ClaimError,
    },
    /// The mount program failed.
    #[error("mount failed: {0}")]
    MountProgram(String),
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

/// State of the volumes of one pod: what its claims resolved to, and its tokens.
#[derive(Default)]
pub struct PodVolumes {
    /// Service account tokens.
    pub tokens: TokenCache,
    /// Changes of the pod's ConfigMaps and Secrets.
    pub changes: Arc<ObjectChanges>,
    resolved: Mutex<HashMap<String, Arc<ResolvedVolume>>>,
}

impl PodVolumes {
    /// Creates the state of a pod whose worker `wake` wakes.
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { changes: Arc::new(ObjectChanges::new(wake)), ..Default::default() }
    }

    /// Resolves a volume of the pod, once.
    pub async fn resolve_volume(
        &self,
        client: &kube::Client,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<Arc<ResolvedVolume>, VolumeError> {
        let known = |volumes: &Mutex<HashMap<String, Arc<ResolvedVolume>>>| {
            volumes.lock().unwrap_or_else(PoisonError::into_inner).get(&volume.name).cloned()
        };
        if let Some(resolved) = known(&self.resolved) {
            return Ok(resolved);
        }
        let resolved = source::resolve_volume(client, pod, volume).await.map_err(|source| {
            let claim = source::claim_name(pod, volume).unwrap_or_default();
            VolumeError::Claim { claim: format!("{}/{claim}", pod_namespace(pod)), source }
        })?;
        let resolved = Arc::new(resolved);
        let mut volumes = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.insert(volume.name.clone(), resolved.clone());
        Ok(resolved)
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
    pub fn volume_path(&self, volume: &Volume, resolved: &ResolvedVolume) -> PathBuf {
        let plugin = match &resolved.source {
            VolumeSource::HostPath(source) => return source.path.clone().into(),
            VolumeSource::Local { path } if resolved.is_block => return path.into(),
            VolumeSource::Local { .. } => "local-volume",
            VolumeSource::Nfs { .. } => "nfs",
            _ if volume.config_map.is_some() => "configmap",
            _ if volume.secret.is_some() => "secret",
            _ if volume.downward_api.is_some() => "downward-api",
            _ if volume.projected.is_some() => "projected",
            _ => "empty-dir",
        };
        self.0.join("volumes").join(format!("kubernetes.io~{plugin}")).join(&resolved.directory)
    }

    /// Returns the mount point of a subPath.
    fn subpath_target(&self, volume: &str, container: &str, index: usize) -> PathBuf {
        self.0.join("volume-subpaths").join(volume).join(container).join(index.to_string())
    }

    /// Sets up or refreshes a volume.
    pub async fn prepare_volume(
        &self,
        volume: &Volume,
        content: &content::VolumeContent<'_>,
        volumes: &PodVolumes,
    ) -> Result<(), VolumeError> {
        let resolved = volumes.resolve_volume(content.client, content.pod, volume).await?;
        let files = match resolved.source {
            VolumeSource::Content => content.collect_files(volume).await?,
            _ => None,
        };
        let setup = VolumeSetup {
            path: self.volume_path(volume, &resolved),
            in_memory: volume.secret.is_some() || volume.projected.is_some(),
            files,
            resolved,
            fs_group: fs_group(content.pod),
            change_policy: change_policy(content.pod),
        };
        run_blocking(move || setup.run()).await
    }

    /// Unmounts and removes the pod's directory. Idempotent. Nothing on other file systems is removed.
    pub fn remove_all(&self) -> Result<(), VolumeError> {
        sys::mount::unmount_idle(&self.0)?;
        sys::beneath::remove_tree(&self.0).map_err(|source| VolumeError::Io { path: self.0.clone(), source })
    }
}

/// The set-up of one volume.
struct VolumeSetup {
    path: PathBuf,
    /// Whether files are kept in memory only.
    in_memory: bool,
    files: Option<VolumeFiles>,
    resolved: Arc<ResolvedVolume>,
    fs_group: Option<u32>,
    change_policy: ownership::ChangePolicy,
}

impl VolumeSetup {
    /// Sets the volume up. Blocks.
    fn run(self) -> Result<(), VolumeError> {
        let at = |source| VolumeError::Io { path: self.path.clone(), source };
        match &self.resolved.source {
            VolumeSource::Content => {
                create_content_dir(&self.path, self.in_memory)?;
                let files = self.files.unwrap_or_default();
                atomic_writer::write_files(&self.path, &files, self.fs_group).map_err(at)
            }
            VolumeSource::EmptyDir(source) => empty_dir::create_empty_dir(source, &self.path, self.fs_group),
            VolumeSource::HostPath(source) => host_path::prepare_host_path(source).map_err(at),
            VolumeSource::Local { .. } if self.resolved.is_block => Ok(()),
            VolumeSource::Local { path } => {
                bind_once(Path::new(path), &self.path, self.resolved.read_only)?;
                self.apply_fs_group()
            }
            VolumeSource::Nfs { server, path, options } => {
                nfs::mount_export(&format!("{server}:{path}"), &self.path, options)
            }
            VolumeSource::Image(_) => Ok(()),
            VolumeSource::Unsupported(kind) => {
                Err(VolumeError::Unsupported(format!("{kind} volumes are not supported by this node")))
            }
        }
    }

    fn apply_fs_group(&self) -> Result<(), VolumeError> {
        match self.fs_group.filter(|_| self.resolved.supports_fs_group()) {
            Some(group) => ownership::set_volume_ownership(&self.path, group, self.change_policy)
                .map_err(|source| VolumeError::Io { path: self.path.clone(), source }),
            None => Ok(()),
        }
    }
}

/// Creates the directory; secrets and tokens are on a tmpfs, never on disk.
fn create_content_dir(path: &Path, in_memory: bool) -> Result<(), VolumeError> {
    fs::create_dir_all(path).map_err(|source| VolumeError::Io { path: path.into(), source })?;
    if in_memory && !sys::mount::is_mount_point(path)? {
        sys::mount::mount_tmpfs(path, None, 0o777)?;
    }
    Ok(())
}

/// Bind-mounts `source` at `target` unless it is mounted already.
fn bind_once(source: &Path, target: &Path, read_only: bool) -> Result<(), VolumeError> {
    let at = |source| VolumeError::Io { path: target.into(), source };
    if !source.is_dir() {
        return Err(VolumeError::Io { path: source.into(), source: io::ErrorKind::NotFound.into() });
    }
    fs::create_dir_all(target).map_err(at)?;
    if !sys::mount::is_mount_point(target)? {
        sys::mount::bind_mount(source, target, read_only)?;
    }
    Ok(())
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

fn change_policy(pod: &Pod) -> ownership::ChangePolicy {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    match context.and_then(|context| context.fs_group_change_policy.as_deref()) {
        Some("OnRootMismatch") => ownership::ChangePolicy::OnRootMismatch,
        _ => ownership::ChangePolicy::Always,
    }
}
