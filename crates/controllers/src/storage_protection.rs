//! Storage protection controllers: remove the protection finalizers of deleted PersistentVolumes,
//! PersistentVolumeClaims and VolumeAttributesClasses once they are unused.

use std::fmt;

use client::{ApiErrorExt, RequeueAction, SharedInformer, WorkQueue};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttributesClass,
};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
};

const PVC_FINALIZER: &str = "kubernetes.io/pvc-protection";
const PV_FINALIZER: &str = "kubernetes.io/pv-protection";
const VAC_FINALIZER: &str = "kubernetes.io/vac-protection";

/// The resource that one of the three controllers handles with its own service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtectedResource {
    Claims,
    Volumes,
    Classes,
}

/// A queued object of a protected resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ProtectedObject {
    Claim(ObjectKey),
    Volume(String),
    Class(String),
}

impl ProtectedObject {
    fn is_resource(&self, protected: ProtectedResource) -> bool {
        let own = match self {
            ProtectedObject::Claim(_) => ProtectedResource::Claims,
            ProtectedObject::Volume(_) => ProtectedResource::Volumes,
            ProtectedObject::Class(_) => ProtectedResource::Classes,
        };
        own == protected
    }
}

struct StorageProtectionController {
    protected: ProtectedResource,
    client: Client,
    pods: SharedInformer<Pod>,
    claims: SharedInformer<PersistentVolumeClaim>,
    volumes: SharedInformer<PersistentVolume>,
    classes: SharedInformer<VolumeAttributesClass>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext, protected: ProtectedResource) {
    let build = |_| StorageProtectionController {
        protected,
        pods: context.informers.informer_for(),
        claims: context.informers.informer_for(),
        volumes: context.informers.informer_for(),
        classes: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for StorageProtectionController {
    type Key = ProtectedObject;
    type Error = kube::Error;
    const WORKERS: usize = 2;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.claims, |this, event, queue| {
            let claim = event.object();
            this.enqueue_object(queue, ProtectedObject::Claim(ObjectKey::from_object(claim.as_ref())));
            claim_class_names(claim).for_each(|class| this.enqueue_object(queue, ProtectedObject::Class(class)));
        });
        watches.add(&self.pods, |this, event, queue| {
            let namespace = event.object().metadata.namespace.as_deref().unwrap_or_default();
            pod_claim_names(event.object())
                .for_each(|name| this.enqueue_object(queue, ProtectedObject::Claim(ObjectKey::new(namespace, &name))));
        });
        watches.add(&self.volumes, |this, event, queue| {
            let (name, spec) = (event.object().metadata.name.clone(), event.object().spec.as_ref());
            let class = spec.and_then(|spec| spec.volume_attributes_class_name.clone());
            let objects = name.map(ProtectedObject::Volume).into_iter().chain(class.map(ProtectedObject::Class));
            objects.for_each(|object| this.enqueue_object(queue, object));
        });
        watches.add(&self.classes, |this, event, queue| {
            let name = event.object().metadata.name.clone();
            name.into_iter().for_each(|name| this.enqueue_object(queue, ProtectedObject::Class(name)));
        });
    }

    async fn sync(&self, object: &ProtectedObject) -> Result<RequeueAction, kube::Error> {
        self.sync_object(object).await
    }
}

impl StorageProtectionController {
    fn enqueue_object(&self, queue: &WorkQueue<ProtectedObject>, object: ProtectedObject) {
        if object.is_resource(self.protected) {
            queue.add(object);
        }
    }

    async fn sync_object(&self, item: &ProtectedObject) -> Result<RequeueAction, kube::Error> {
        match item {
            ProtectedObject::Claim(key) => {
                let waits = self
                    .claims
                    .get(&key.namespace, &key.name)
                    .filter(|claim| awaits_finalizer(claim.as_ref(), PVC_FINALIZER));
                match waits {
                    Some(claim) if !self.is_claim_in_use(key) => {
                        remove_finalizer(
                            Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace),
                            claim.as_ref(),
                            PVC_FINALIZER,
                        )
                        .await
                    }
                    _ => Ok(RequeueAction::AwaitChange),
                }
            }
            ProtectedObject::Volume(name) => match self
                .volumes
                .get("", name)
                .filter(|volume| awaits_finalizer(volume.as_ref(), PV_FINALIZER))
            {
                Some(volume) if !is_volume_bound(&volume) => {
                    remove_finalizer(Api::<PersistentVolume>::all(self.client.clone()), volume.as_ref(), PV_FINALIZER)
                        .await
                }
                _ => Ok(RequeueAction::AwaitChange),
            },
            ProtectedObject::Class(name) => {
                match self.classes.get("", name).filter(|class| awaits_finalizer(class.as_ref(), VAC_FINALIZER)) {
                    Some(class) if !self.is_class_in_use(name) => {
                        remove_finalizer(
                            Api::<VolumeAttributesClass>::all(self.client.clone()),
                            class.as_ref(),
                            VAC_FINALIZER,
                        )
                        .await
                    }
                    _ => Ok(RequeueAction::AwaitChange),
                }
            }
        }
    }

    /// Whether a scheduled pod uses the claim. An unscheduled pod never starts with a deleted claim.
    fn is_claim_in_use(&self, key: &ObjectKey) -> bool {
        self.pods.list().iter().any(|pod| {
            pod.metadata.namespace.as_deref() == Some(&key.namespace)
                && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
                && pod_claim_names(pod).any(|name| name == key.name)
        })
    }

    /// Whether a claim or a volume refers to the class.
    fn is_class_in_use(&self, name: &str) -> bool {
        let by_volume = |volume: &PersistentVolume| {
            volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()) == Some(name)
        };
        self.claims.list().iter().any(|claim| claim_class_names(claim).any(|class| class == name))
            || self.volumes.list().iter().any(|volume| by_volume(volume))
    }
}

/// Returns the names of the pod's claims, including those of ephemeral volumes.
fn pod_claim_names(pod: &Pod) -> impl Iterator<Item = String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    })
}

fn claim_class_names(claim: &PersistentVolumeClaim) -> impl Iterator<Item = String> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    let current = claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.clone());
    let modified = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
    let target = modified.and_then(|status| status.target_volume_attributes_class_name.clone());
    [wanted, current, target].into_iter().flatten()
}

fn is_volume_bound(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether the object is being deleted and has the finalizer.
fn awaits_finalizer<K: Resource>(object: &K, finalizer: &str) -> bool {
    let meta = object.meta();
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().any(|known| known == finalizer)
}

/// Removes a finalizer from the observed version of the object.
async fn remove_finalizer<K>(api: Api<K>, object: &K, finalizer: &str) -> Result<RequeueAction, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Serialize,
{
    let mut released = object.clone();
    released.meta_mut().finalizers.iter_mut().for_each(|known| known.retain(|name| name != finalizer));
    let name = object.meta().name.as_deref().unwrap_or_default();
    match api.replace(name, &PostParams::default(), &released).await {
        Ok(_) => Ok(RequeueAction::AwaitChange),
        Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
        // The newer version is about to arrive in the cache.
        Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_uses_named_and_ephemeral_claims() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "ephemeral": {}}, {"name": "c", "emptyDir": {}}]}}))
        .unwrap();
        assert_eq!(pod_claim_names(&pod).collect::<Vec<_>>(), ["data", "p-b"]);
    }

    #[test]
    fn only_deleted_objects_with_the_finalizer_are_processed() {
        let claim = |deleted: bool, finalizers: &[&str]| -> PersistentVolumeClaim {
            let mut claim = json!({"metadata": {"finalizers": finalizers}});
            if deleted {
                claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            serde_json::from_value(claim).unwrap()
        };
        assert!(awaits_finalizer(&claim(true, &[PVC_FINALIZER, "other"]), PVC_FINALIZER));
        assert!(
            !awaits_finalizer(&claim(false, &[PVC_FINALIZER]), PVC_FINALIZER)
                && !awaits_finalizer(&claim(true, &["other"]), PVC_FINALIZER)
        );
    }
}
