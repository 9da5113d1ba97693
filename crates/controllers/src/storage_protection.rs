//! Storage protection controllers: remove the protection finalizers of deleted PersistentVolumes,
//! PersistentVolumeClaims and VolumeAttributesClasses once they are unused.

use std::fmt;

use client::{ApiErrorExt, RequeueAction, SharedInformer, WorkQueue};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttributesClass,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref,
    object_key::ObjectKey,
    pod_claims::{PODS_BY_CLAIM, index_pods_by_claim, pod_claim_names},
    pod_view::PodView,
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
    pods: SharedInformer<PodView>,
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
        index_pods_by_claim(&self.pods);
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

    async fn sync_object(&self, object: &ProtectedObject) -> Result<RequeueAction, kube::Error> {
        match object {
            ProtectedObject::Claim(key) => {
                let Some(claim) = self.claims.get(&key.namespace, &key.name) else {
                    return Ok(RequeueAction::AwaitChange);
                };
                let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
                match protection_step(claim.as_ref(), PVC_FINALIZER) {
                    ProtectionStep::Release if self.check_claim_in_use(&claim, key).await? => {
                        Ok(RequeueAction::AwaitChange)
                    }
                    step => apply_step(api, claim.as_ref(), PVC_FINALIZER, step).await,
                }
            }
            ProtectedObject::Volume(name) => {
                let Some(volume) = self.volumes.get("", name) else { return Ok(RequeueAction::AwaitChange) };
                let api: Api<PersistentVolume> = Api::all(self.client.clone());
                match protection_step(volume.as_ref(), PV_FINALIZER) {
                    ProtectionStep::Release if is_volume_bound(&volume) => Ok(RequeueAction::AwaitChange),
                    step => apply_step(api, volume.as_ref(), PV_FINALIZER, step).await,
                }
            }
            ProtectedObject::Class(name) => {
                let Some(class) = self.classes.get("", name) else { return Ok(RequeueAction::AwaitChange) };
                let api: Api<VolumeAttributesClass> = Api::all(self.client.clone());
                match protection_step(class.as_ref(), VAC_FINALIZER) {
                    ProtectionStep::Release if self.check_class_in_use(name).await? => Ok(RequeueAction::AwaitChange),
                    step => apply_step(api, class.as_ref(), VAC_FINALIZER, step).await,
                }
            }
        }
    }

    /// Whether a pod uses the claim, by the cache and, since that may be old, by the server.
    async fn check_claim_in_use(&self, claim: &PersistentVolumeClaim, key: &ObjectKey) -> Result<bool, kube::Error> {
        if self.pods.by_index(PODS_BY_CLAIM, &key.to_string()).iter().any(|pod| pod_uses_claim(pod, claim)) {
            return Ok(true);
        }
        let api: Api<PodView> = Api::namespaced(self.client.clone(), &key.namespace);
        let live = api.list(&ListParams::default()).await?;
        Ok(live.items.iter().any(|pod| pod_uses_claim(pod, claim)))
    }

    /// Whether a claim or a volume refers to the class, by the caches and by the server.
    async fn check_class_in_use(&self, name: &str) -> Result<bool, kube::Error> {
        let by_claim = |claim: &PersistentVolumeClaim| claim_class_names(claim).any(|class| class == name);
        let by_volume = |volume: &PersistentVolume| {
            volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()) == Some(name)
        };
        if self.claims.list().iter().any(|claim| by_claim(claim))
            || self.volumes.list().iter().any(|volume| by_volume(volume))
        {
            return Ok(true);
        }
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        Ok(claims.list(&ListParams::default()).await?.items.iter().any(by_claim)
            || volumes.list(&ListParams::default()).await?.items.iter().any(by_volume))
    }
}

/// Whether a scheduled pod uses the claim. An unscheduled pod never starts with a deleted claim.
fn pod_uses_claim(pod: &PodView, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = pod.spec.as_ref().filter(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()))
    else {
        return false;
    };
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let is_shut_down =
        pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    let is_own = controller_ref::controller_of(&claim.metadata)
        .is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
    spec.volumes.iter().flatten().any(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => source.claim_name == name,
        (None, Some(_)) => !is_shut_down && is_own && format!("{}-{}", pod.name_any(), volume.name) == name,
        (None, None) => false,
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

/// The next step for a protected object.
#[derive(Debug, PartialEq, Eq)]
enum ProtectionStep {
    None,
    /// The object lacks the finalizer.
    Protect,
    /// The object is being deleted; the finalizer goes if it is unused.
    Release,
}

fn protection_step<K: Resource>(object: &K, finalizer: &str) -> ProtectionStep {
    let meta = object.meta();
    let has_finalizer = meta.finalizers.iter().flatten().any(|known| known == finalizer);
    match (meta.deletion_timestamp.is_some(), has_finalizer) {
        (false, false) => ProtectionStep::Protect,
        (true, true) => ProtectionStep::Release,
        _ => ProtectionStep::None,
    }
}

/// Adds or removes the finalizer of the observed version of the object.
async fn apply_step<K>(
    api: Api<K>,
    object: &K,
    finalizer: &str,
    step: ProtectionStep,
) -> Result<RequeueAction, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Serialize,
{
    let mut released = object.clone();
    let finalizers = released.meta_mut().finalizers.get_or_insert_default();
    match step {
        ProtectionStep::None => return Ok(RequeueAction::AwaitChange),
        ProtectionStep::Protect => finalizers.push(finalizer.into()),
        ProtectionStep::Release => finalizers.retain(|known| known != finalizer),
    }
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
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use serde_json::json;

    use super::*;

    fn claim(value: serde_json::Value) -> PersistentVolumeClaim {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn scheduled_pods_use_named_and_own_ephemeral_claims() {
        let pod = |uid: &str, node: &str| -> PodView {
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": uid}, "spec": {"nodeName": node, "containers": [],
                "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "ephemeral": {}}]}}))
            .unwrap()
        };
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]);
        let ephemeral = claim(json!({"metadata": {"name": "p-b", "ownerReferences": owner}}));
        assert!(pod_uses_claim(&pod("1", "n"), &claim(json!({"metadata": {"name": "data"}}))));
        assert!(!pod_uses_claim(&pod("1", ""), &claim(json!({"metadata": {"name": "data"}}))));
        assert!(!pod_uses_claim(&pod("1", "n"), &claim(json!({"metadata": {"name": "other"}}))));
        assert!(pod_uses_claim(&pod("1", "n"), &ephemeral) && !pod_uses_claim(&pod("2", "n"), &ephemeral));
    }

    #[test]
    fn finalizer_is_added_to_live_and_removed_from_deleted_objects() {
        let step = |deleted: Option<&str>, finalizers: &[&str]| {
            let claim = claim(json!({"metadata": {"deletionTimestamp": deleted, "finalizers": finalizers}}));
            protection_step(&claim, PVC_FINALIZER)
        };
        let deleted = Some("2026-01-01T00:00:00Z");
        assert_eq!(step(deleted, &[PVC_FINALIZER, "other"]), ProtectionStep::Release);
        assert_eq!(step(deleted, &["other"]), ProtectionStep::None);
        assert_eq!(step(None, &[PVC_FINALIZER]), ProtectionStep::None);
        assert_eq!(step(None, &[]), ProtectionStep::Protect);
    }

    /// A server with a deleted claim and a pod that uses it, which watches do not deliver; counts the writes.
    fn server_with_unobserved_pod(writes: Arc<AtomicUsize>) -> Client {
        client::transport::in_process_client(
            tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let writes = writes.clone();
                async move {
                    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
                    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {
                        "name": "data", "namespace": "ns", "uid": "1", "resourceVersion": "1",
                        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [PVC_FINALIZER]}});
                    let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n", "containers": [],
                        "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}]}});
                    let end = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "x", "metadata": {
                        "resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}});
                    let body = match () {
                        () if request.method() != http::Method::GET => {
                            writes.fetch_add(1, Ordering::SeqCst);
                            claim.to_string()
                        }
                        () if query.contains("watch=true") && path.ends_with("persistentvolumeclaims") => {
                            format!("{}\n{end}\n", json!({"type": "ADDED", "object": claim}))
                        }
                        () if query.contains("watch=true") => format!("{end}\n"),
                        () => {
                            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]}).to_string()
                        }
                    };
                    Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(body.into_bytes())))
                }
            }),
            "test",
        )
    }

    #[tokio::test]
    async fn claim_of_a_pod_that_the_cache_lacks_is_kept() {
        let writes = Arc::new(AtomicUsize::new(0));
        let client = server_with_unobserved_pod(writes.clone());
        let shutdown = tokio_util::sync::CancellationToken::new();
        let informers = client::SharedInformerFactory::new(client.clone(), shutdown.clone());
        let controller = StorageProtectionController {
            protected: ProtectedResource::Claims,
            pods: informers.informer_for(),
            claims: informers.informer_for(),
            volumes: informers.informer_for(),
            classes: informers.informer_for(),
            client,
        };
        controller.claims.wait_for_cache_sync().await;
        let work = ProtectedObject::Claim(ObjectKey::new("ns", "data"));
        assert_eq!(controller.sync_object(&work).await.unwrap(), RequeueAction::AwaitChange);
        assert_eq!(writes.load(Ordering::SeqCst), 0);
        shutdown.cancel();
    }
}
