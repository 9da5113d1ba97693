//! The local-path provisioner: claims of its StorageClass get a directory on the node that their first pod runs on.
//!
//! Every node runs one, for its own volumes, like an external provisioner that is deployed per node. It answers
//! the annotations of the persistent volume controller and of the scheduler, and removes the directory of a released volume
//! whose reclaim policy is `Delete`. The requested size is not enforced.

mod storage_class;
mod volume;

use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::watcher,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub use self::storage_class::create_storage_class;
use self::volume::{UnsupportedClaim, build_volume, check_claim, is_volume_at, volume_name};

/// The provisioner's name.
pub const PROVISIONER: &str = "local-path.ferry.dev";
/// The annotation of a volume that names its provisioner.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The annotations of a claim that name the provisioner it waits for.
const CLAIM_PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// The annotation of a claim with the node of its first pod.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The finalizer of external provisioners: a volume stays until its directory is removed.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Pods run as any user.
const DIRECTORY_MODE: u32 = 0o777;
const WORKERS: usize = 4;

/// A claim or a volume to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ProvisionerKey {
    Claim { namespace: String, name: String },
    Volume(String),
}

/// A volume was not made or not removed.
#[derive(Debug, thiserror::Error)]
enum ProvisionError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Unsupported(#[from] UnsupportedClaim),
    #[error("{}: {error}", path.display())]
    Directory { path: PathBuf, error: io::Error },
    #[error("storageclass.storage.k8s.io {0:?} not found")]
    NoClass(String),
    #[error("volume {0}: {1}")]
    Volume(String, serde_json::Error),
}

/// The provisioner of one node.
pub struct LocalPathProvisioner {
    client: Client,
    node: String,
    root: PathBuf,
    claims: SharedInformer<PersistentVolumeClaim>,
    volumes: SharedInformer<PersistentVolume>,
    classes: SharedInformer<StorageClass>,
    recorder: EventRecorder,
}

impl LocalPathProvisioner {
    /// Creates the provisioner of `node` with its directories in `root`, and starts its informers.
    pub fn new(client: Client, node: &str, root: PathBuf, shutdown: &CancellationToken) -> Self {
        let every = watcher::Config::default;
        Self {
            claims: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            volumes: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            classes: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            recorder: EventRecorder::new(client.clone(), PROVISIONER, Some(node)),
            node: node.to_owned(),
            root,
            client,
        }
    }

    /// Provisions and removes volumes until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let queue = WorkQueue::new("local-path-provisioner");
        let (claims, volumes) = (queue.clone(), queue.clone());
        self.claims.add_event_handler(move |event: &ResourceEvent<PersistentVolumeClaim>| {
            let claim = event.object();
            let namespace = claim.namespace().unwrap_or_default();
            claims.add(ProvisionerKey::Claim { namespace, name: claim.name_any() });
        });
        self.volumes.add_event_handler(move |event: &ResourceEvent<PersistentVolume>| {
            volumes.add(ProvisionerKey::Volume(event.object().name_any()));
        });
        let synced = async {
            self.classes.wait_for_cache_sync().await;
            self.claims.wait_for_cache_sync().await;
            self.volumes.wait_for_cache_sync().await;
        };
        if shutdown.run_until_cancelled(synced).await.is_none() {
            return;
        }
        let provisioner = Arc::new(self);
        let sync = move |key| {
            let provisioner = provisioner.clone();
            async move { provisioner.sync(key).await }
        };
        queue.run_workers(WORKERS, shutdown, sync).await;
    }

    async fn sync(&self, key: ProvisionerKey) -> Result<RequeueAction, ProvisionError> {
        match key {
            ProvisionerKey::Claim { namespace, name } => {
                if let Some(claim) = self.claims.get(&namespace, &name).filter(|claim| self.is_wanted(claim)) {
                    self.provision_and_record(&claim).await?;
                }
            }
            ProvisionerKey::Volume(name) => {
                if let Some(volume) = self.volumes.get("", &name) {
                    self.reclaim_volume(&volume).await?;
                }
            }
        }
        Ok(RequeueAction::AwaitChange)
    }

    /// Reports whether the claim waits for a volume of this node.
    fn is_wanted(&self, claim: &PersistentVolumeClaim) -> bool {
        let annotations = claim.annotations();
        let is_ours = CLAIM_PROVISIONER.iter().any(|key| annotations.get(*key).is_some_and(|name| name == PROVISIONER));
        let is_bound =
            claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref()).is_some_and(|name| !name.is_empty());
        // Of a class that binds at once the first node to answer serves the claim.
        let is_here = annotations.get(SELECTED_NODE).is_none_or(|node| *node == self.node);
        is_ours && is_here && !is_bound && claim.metadata.deletion_timestamp.is_none()
    }

    async fn provision_and_record(&self, claim: &PersistentVolumeClaim) -> Result<(), ProvisionError> {
        let regarding = claim.object_ref(&());
        match self.provision(claim).await {
            Ok(Some(name)) => {
                let message = format!("Successfully provisioned volume {name}");
                self.recorder.record_normal(regarding, "ProvisioningSucceeded", message);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                let class = class_name(claim).unwrap_or_default();
                let message = format!("failed to provision volume with StorageClass {class:?}: {error}");
                self.recorder.record_warning(regarding, "ProvisioningFailed", message);
                Err(error)
            }
        }
    }

    /// Makes the directory and the volume of a claim; returns its name unless another node has made it.
    async fn provision(&self, claim: &PersistentVolumeClaim) -> Result<Option<String>, ProvisionError> {
        let class = class_name(claim).unwrap_or_default();
        let class = self.classes.get("", class).ok_or_else(|| ProvisionError::NoClass(class.to_owned()))?;
        check_claim(claim, &class)?;
        let Some(name) = volume_name(claim) else { return Ok(None) };
        let path = self.root.join(&name);
        let failed = |error| ProvisionError::Directory { path: path.clone(), error };
        fs::create_dir_all(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(DIRECTORY_MODE)).map_err(failed)?;
        let location = path.to_string_lossy();
        let volume = build_volume(claim, &class, &self.node, &name, &location);
        let volume = serde_json::from_value(volume).map_err(|error| ProvisionError::Volume(name.clone(), error))?;
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &volume).await {
            Ok(_) => Ok(Some(name)),
            Err(error) if error.is_already_exists() => {
                let existing = api.get_opt(&name).await?;
                if existing.is_some_and(|volume| !is_volume_at(&volume, &self.node, &location)) {
                    // The directory is empty; one with data in it is kept.
                    fs::remove_dir(&path).map_err(failed)?;
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the directory of a volume that is released and to be deleted, then the volume.
    async fn reclaim_volume(&self, volume: &PersistentVolume) -> Result<(), ProvisionError> {
        let name = volume.name_any();
        let path = self.root.join(&name);
        if !is_volume_at(volume, &self.node, &path.to_string_lossy())
            || !volume.finalizers().iter().any(|f| f == FINALIZER)
        {
            return Ok(());
        }
        let spec = volume.spec.as_ref();
        let is_deletable = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_deleted = volume.metadata.deletion_timestamp.is_some();
        match (is_deletable, phase) {
            (true, Some("Released")) => {
                let removed = path.clone();
                let remove = tokio::task::spawn_blocking(move || sys::beneath::remove_tree(&removed)).await;
                remove
                    .unwrap_or_else(|error| Err(io::Error::other(error)))
                    .map_err(|error| ProvisionError::Directory { path, error })?;
            }
            // A volume that is kept loses only its object.
            (false, Some("Released" | "Available" | "Failed")) if is_deleted => {}
            _ => return Ok(()),
        }
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        if !is_deleted {
            let preconditions = Preconditions { uid: volume.uid(), ..Preconditions::default() };
            let options = DeleteParams::default().preconditions(preconditions);
            ignore_not_found(api.delete(&name, &options).await.map(drop))?;
        }
        let kept: Vec<&String> = volume.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "uid": volume.uid(), "finalizers": kept });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        ignore_not_found(api.patch(&name, &PatchParams::default(), &patch).await.map(drop))
    }
}

fn ignore_not_found(outcome: Result<(), kube::Error>) -> Result<(), ProvisionError> {
    match outcome {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}
