//! selinux-warning-controller: records events on pods that share a volume and would mount it with different SELinux
//! labels or change policies. It writes nothing else and is off by default.

mod volume_cache;
mod volumes;

use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::api::{
    core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, Volume},
    storage::v1::CSIDriver,
};
use kube::{Api, Client, Resource, ResourceExt};

use self::{
    volume_cache::VolumeCache,
    volumes::{SharedVolume, VolumeLabel, mount_labels},
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref::controller_of,
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_claims::{PODS_BY_CLAIM, index_pods_by_claim},
    pod_view::PodView,
};

struct SelinuxWarningController {
    client: Client,
    recorder: EventRecorder,
    pods: SharedInformer<PodView>,
    claims: SharedInformer<PersistentVolumeClaim>,
    volumes: SharedInformer<PersistentVolume>,
    drivers: SharedInformer<CSIDriver>,
    cache: Mutex<VolumeCache>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| SelinuxWarningController {
        recorder: EventRecorder::new(context.client.clone(), "selinux_warning", None),
        pods: context.informers.informer_for(),
        claims: context.informers.informer_for(),
        volumes: context.informers.informer_for(),
        drivers: context.informers.informer_for(),
        cache: Mutex::default(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for SelinuxWarningController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_pods_by_claim(&self.pods);
        watches.add(&self.pods, |_, event, queue| {
            // The fields of the spec that matter are immutable.
            let is_ignored =
                matches!(event, ResourceEvent::Updated { old, new } if is_pod_terminal(old) || !is_pod_terminal(new));
            if !is_ignored {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
        watches.add(&self.claims, |this, event, queue| {
            let is_same =
                matches!(event, ResourceEvent::Updated { old, new } if bound_volume(old) == bound_volume(new));
            if !is_same && bound_volume(event.object()).is_some() {
                this.enqueue_pods_of_claim(queue, &ObjectKey::from_object(event.object().as_ref()));
            }
        });
        watches.add(&self.volumes, |this, event, queue| {
            let uid = |volume: &PersistentVolume| bound_claim(volume).and_then(|claim| claim.uid.clone());
            let is_same = matches!(event, ResourceEvent::Updated { old, new } if uid(old) == uid(new));
            if let Some(claim) = bound_claim(event.object()).filter(|_| !is_same) {
                let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
                let claim = ObjectKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
                this.enqueue_pods_of_claim(queue, &claim);
            }
        });
        watches.add(&self.drivers, |this, event, queue| {
            if is_support_changed(event) {
                let pods = this.lock_cache().pods_of_driver(&event.object().name_any());
                pods.into_iter().for_each(|pod| queue.add(pod));
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        // The view of a pod has neither its volumes nor its security contexts.
        let pod = match self.pods.get(&key.namespace, &key.name).filter(|pod| !is_pod_terminal(pod)) {
            Some(_) => Api::namespaced(self.client.clone(), &key.namespace).get_opt(&key.name).await?,
            None => None,
        };
        match pod {
            Some(pod) => self.check_pod(key, &pod),
            None => self.lock_cache().delete_pod(key),
        }
        Ok(RequeueAction::AwaitChange)
    }
}

/// The name of the volume that a claim is bound to.
fn bound_volume(claim: &PersistentVolumeClaim) -> Option<&str> {
    let is_bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| is_bound && !name.is_empty())
}

/// The claim that a volume is completely bound to.
fn bound_claim(volume: &PersistentVolume) -> Option<&ObjectReference> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    claim.uid.as_ref().is_some_and(|uid| !uid.is_empty()).then_some(claim)
}

fn supports_label_mount(driver: &CSIDriver) -> bool {
    driver.spec.se_linux_mount.unwrap_or(false)
}

/// Whether pods with volumes of the driver may have another label than before.
fn is_support_changed(event: &ResourceEvent<CSIDriver>) -> bool {
    match event {
        ResourceEvent::Added(_) => true,
        ResourceEvent::Updated { old, new } => supports_label_mount(old) != supports_label_mount(new),
        ResourceEvent::Deleted(driver) => supports_label_mount(driver),
    }
}

impl SelinuxWarningController {
    fn enqueue_pods_of_claim(&self, queue: &WorkQueue<ObjectKey>, claim: &ObjectKey) {
        let pods = self.pods.by_index(PODS_BY_CLAIM, &claim.to_string());
        pods.iter().for_each(|pod| queue.add(ObjectKey::from_object(pod.as_ref())));
    }

    /// Adds the volumes of a pod to the cache and records the conflicts that they cause.
    fn check_pod(&self, key: &ObjectKey, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        let driver_supports =
            |name: &str| self.drivers.get("", name).is_some_and(|driver| supports_label_mount(&driver));
        for (name, labels) in mount_labels(spec) {
            let source = spec.volumes.iter().flatten().find(|volume| volume.name == name);
            let Some(volume) = source.and_then(|volume| self.find_volume(pod, volume)) else { continue };
            match VolumeLabel::new(pod, &labels, volume.supports_label_mount(driver_supports)) {
                Ok(label) => self.record_conflicts(&volume, key, &label),
                Err(_) => {
                    let message =
                        format!("Volume {name:?} is mounted twice with different SELinux labels inside this pod");
                    self.recorder.record_warning(pod.object_ref(&()), "MultipleSELinuxLabels", message);
                }
            }
        }
    }

    fn record_conflicts(&self, volume: &SharedVolume, key: &ObjectKey, label: &VolumeLabel) {
        let conflicts = self.lock_cache().add_volume(volume, key, label);
        for conflict in conflicts {
            // A conflict with a deleted pod is resolved.
            let Some(pod) = self.pods.get(&conflict.pod.namespace, &conflict.pod.name) else { return };
            self.recorder.record_normal(pod.object_ref(&()), conflict.reason(), conflict.message());
        }
    }

    /// Returns the volume behind an entry of `pod.spec.volumes`; `None` while its claim is not bound.
    fn find_volume(&self, pod: &Pod, volume: &Volume) -> Option<SharedVolume> {
        let claim_name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => claim.claim_name.clone(),
            (None, Some(_)) => format!("{}-{}", pod.name_any(), volume.name),
            (None, None) => return SharedVolume::from_inline(volume),
        };
        let claim = self.claims.get(pod.metadata.namespace.as_deref().unwrap_or_default(), &claim_name)?;
        if volume.ephemeral.is_some() && !is_controlled_by(&claim, pod) {
            return None;
        }
        let persistent = self.volumes.get("", bound_volume(&claim)?)?;
        bound_claim(&persistent).filter(|bound| bound.uid == claim.metadata.uid)?;
        SharedVolume::from_persistent_volume(&persistent)
    }

    fn lock_cache(&self) -> MutexGuard<'_, VolumeCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the claim of an ephemeral volume was created for the pod.
fn is_controlled_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    controller_of(&claim.metadata).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}
