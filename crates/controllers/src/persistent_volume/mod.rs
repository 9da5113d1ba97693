//! The PersistentVolume binder: binds claims to volumes, requests provisioning, and reclaims released volumes.
//!
//! A binding is two references: `volume.spec.claimRef` is written first, then `claim.spec.volumeName`. An interrupted
//! binding is completed by the next sync of either object. One worker handles claims and volumes, so that no volume is
//! given to two claims.

mod claims;
pub(crate) mod matching;
mod reclaim;
mod recycler;
mod volumes;
mod written_objects;

use std::{fmt, sync::Arc, time::Duration};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_claims::{PODS_BY_CLAIM, claim_ref_key, index_pods_by_claim},
    pod_view::PodView,
};
use matching::{claim_class, has_class, volume_class};
use recycler::RunningRecyclers;
use written_objects::WrittenObjects;

/// Index of volumes by storage class.
const BY_CLASS: &str = "storageClass";
/// Index of volumes by the claim that they are bound to or reserved for.
const BY_CLAIM: &str = "claimRef";
/// Index of claims that are not bound, by storage class.
const UNBOUND_BY_CLASS: &str = "unboundStorageClass";

/// A queued claim or volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BinderKey {
    Claim(ObjectKey),
    Volume(String),
}

impl fmt::Display for BinderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BinderKey::Claim(key) => write!(f, "claim {key}"),
            BinderKey::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

struct PersistentVolumeBinder {
    client: Client,
    recorder: EventRecorder,
    claims: WrittenObjects<PersistentVolumeClaim>,
    volumes: WrittenObjects<PersistentVolume>,
    classes: SharedInformer<StorageClass>,
    pods: SharedInformer<PodView>,
    recyclers: RunningRecyclers,
    queue: WorkQueue<BinderKey>,
    dynamic_provisioning: bool,
    sync_period: Duration,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |queue| PersistentVolumeBinder {
        recorder: EventRecorder::new(context.client.clone(), "persistentvolume-controller", None),
        claims: WrittenObjects::new(context.informers.informer_for()),
        volumes: WrittenObjects::new(context.informers.informer_for()),
        classes: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        client: context.client.clone(),
        recyclers: RunningRecyclers::default(),
        queue,
        dynamic_provisioning: context.options.volumes.dynamic_provisioning,
        sync_period: context.options.volumes.binder_sync_period,
    };
    run_controller(&context, build).await;
}

impl Controller for PersistentVolumeBinder {
    type Key = BinderKey;
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        let (claims, volumes) = (self.claims.informer(), self.volumes.informer());
        volumes.add_index(BY_CLASS, |volume| vec![volume_class(volume).to_owned()]);
        volumes.add_index(BY_CLAIM, |volume| claim_ref_key(volume).map(|key| key.to_string()).into_iter().collect());
        claims.add_index(UNBOUND_BY_CLASS, |claim| match is_unbound(claim) {
            true => vec![claim_class(claim).to_owned()],
            false => Vec::new(),
        });
        index_pods_by_claim(&self.pods);
        watches.add(claims, |_, event, queue| {
            let claim = event.object();
            queue.add(BinderKey::Claim(ObjectKey::from_object(claim.as_ref())));
            if let ResourceEvent::Deleted(claim) = event {
                volume_name(claim).into_iter().for_each(|name| queue.add(BinderKey::Volume(name.to_owned())));
            }
        });
        watches.add(volumes, |this, event, queue| this.handle_volume_event(event, queue));
        watches.add(&self.classes, |this, event, queue| {
            let class = event.object();
            for name in [class.name_any(), String::new()] {
                this.enqueue_unbound(queue, &name);
            }
        });
        watches.add(&self.pods, |_, event, queue| {
            let volume = recycler::recycled_volume(event.object());
            volume.into_iter().for_each(|name| queue.add(BinderKey::Volume(name.to_owned())));
        });
    }

    async fn sync(&self, key: &BinderKey) -> Result<RequeueAction, kube::Error> {
        let is_settled = match key {
            BinderKey::Claim(key) => match self.claims.get(key) {
                Some(claim) => self.sync_claim(claim).await?,
                None => true,
            },
            BinderKey::Volume(name) => match self.volumes.get(&ObjectKey::new("", name)) {
                Some(volume) => self.sync_volume(volume).await?,
                None => true,
            },
        };
        Ok(if is_settled { RequeueAction::AwaitChange } else { RequeueAction::After(self.sync_period) })
    }
}

impl PersistentVolumeBinder {
    fn handle_volume_event(&self, event: &ResourceEvent<PersistentVolume>, queue: &WorkQueue<BinderKey>) {
        let volume = event.object();
        if let ResourceEvent::Deleted(_) = event {
            self.recyclers.forget(&volume.name_any());
        }
        queue.add(BinderKey::Volume(volume.name_any()));
        match claim_ref_key(volume) {
            Some(claim) => queue.add(BinderKey::Claim(claim)),
            // A volume that is free may satisfy claims that wait.
            None => self.enqueue_unbound(queue, volume_class(volume)),
        }
    }

    fn enqueue_unbound(&self, queue: &WorkQueue<BinderKey>, class: &str) {
        let claims = self.claims.informer().by_index(UNBOUND_BY_CLASS, class);
        claims.iter().for_each(|claim| queue.add(BinderKey::Claim(ObjectKey::from_object(claim.as_ref()))));
    }

    /// Returns the volumes that may match a claim: those of its class and those reserved for it.
    fn candidate_volumes(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<PersistentVolume>> {
        let informer = self.volumes.informer();
        let mut found = informer.by_index(BY_CLASS, claim_class(claim));
        let reserved = informer.by_index(BY_CLAIM, &ObjectKey::from_object(claim).to_string());
        found.extend(reserved.into_iter().filter(|volume| volume_class(volume) != claim_class(claim)));
        found.into_iter().map(|volume| self.volumes.newest(volume)).collect()
    }

    /// Assigns the default storage class to a claim without any; returns whether it was written.
    async fn assign_default_class(&self, claim: &PersistentVolumeClaim) -> Result<bool, kube::Error> {
        if has_class(claim) {
            return Ok(false);
        }
        let Some(class) = default_class(&self.classes.list()).map(|class| class.name_any()) else { return Ok(false) };
        let mut changed = claim.clone();
        changed.spec.get_or_insert_default().storage_class_name = Some(class);
        self.update_claim(changed).await?;
        Ok(true)
    }

    async fn update_claim(&self, claim: PersistentVolumeClaim) -> Result<Arc<PersistentVolumeClaim>, kube::Error> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), claim.metadata.namespace.as_deref().unwrap_or(""));
        let written = api.replace(&claim.name_any(), &PostParams::default(), &claim).await?;
        Ok(self.claims.record(written))
    }

    async fn update_volume(&self, volume: PersistentVolume) -> Result<Arc<PersistentVolume>, kube::Error> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let written = api.replace(&volume.name_any(), &PostParams::default(), &volume).await?;
        Ok(self.volumes.record(written))
    }

    /// Reads a claim from the server.
    async fn read_claim(&self, key: &ObjectKey) -> Result<Option<PersistentVolumeClaim>, kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.get(&key.name).await {
            Err(error) if error.is_not_found() => Ok(None),
            result => result.map(Some),
        }
    }

    /// Names of the pods that use a claim and are not terminated.
    fn pods_of_claim(&self, claim: &ObjectKey) -> Vec<Arc<PodView>> {
        let mut pods = self.pods.by_index(PODS_BY_CLAIM, &claim.to_string());
        pods.retain(|pod| !is_pod_terminal(pod));
        pods.sort_by_key(|pod| pod.name_any());
        pods
    }
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn is_unbound(claim: &PersistentVolumeClaim) -> bool {
    !claim.annotations().contains_key(matching::BIND_COMPLETED)
}

/// Returns the default class: the newest of those that are marked, and of equally new ones the first by name.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    const MARKS: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_marked = |class: &StorageClass| {
        MARKS.iter().any(|mark| class.annotations().get(*mark).is_some_and(|value| value == "true"))
    };
    let newest_first = |class: &Arc<StorageClass>| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(created), class.name_any())
    };
    classes.iter().filter(|class| is_marked(class)).min_by_key(|class| newest_first(class))
}
