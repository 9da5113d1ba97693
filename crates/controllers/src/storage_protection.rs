//! Volumes, claims and attribute classes that are deleted stay as long as they are used: their finalizers, which the API
//! server puts there, go when nobody uses them any more.

use std::{fmt, sync::Arc};

use client::{ApiErrorExt, Informer, Queue, Requeue};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttributesClass,
};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Context, key::Key};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";

/// Which of them a loop is about: each has rights of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protected {
    Claims,
    Volumes,
    Classes,
}

/// What may be waiting to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Item {
    Claim(Key),
    Volume(String),
    Class(String),
}

impl Item {
    fn is_of(&self, protected: Protected) -> bool {
        let own = match self {
            Item::Claim(_) => Protected::Claims,
            Item::Volume(_) => Protected::Volumes,
            Item::Class(_) => Protected::Classes,
        };
        own == protected
    }
}

struct Controller {
    protected: Protected,
    client: Client,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<VolumeAttributesClass>,
    queue: Queue<Item>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context, protected: Protected) {
    let controller = Arc::new(Controller {
        protected,
        pods: context.informers.of(),
        claims: context.informers.of(),
        volumes: context.informers.of(),
        classes: context.informers.of(),
        queue: Queue::new(),
        client: context.client,
    });
    controller.watch();
    controller.pods.synced().await;
    controller.claims.synced().await;
    controller.volumes.synced().await;
    controller.classes.synced().await;
    let worker = controller.clone();
    let sync = move |item: Item| {
        let controller = worker.clone();
        async move { controller.sync(&item).await }
    };
    controller.queue.run(2, context.shutdown, sync).await;
}

impl Controller {
    fn watch(self: &Arc<Self>) {
        let this = self.clone();
        self.claims.on_change(move |change| {
            let claim = change.object();
            this.add(Item::Claim(Key::of(claim.as_ref())));
            classes_of(claim).for_each(|class| this.add(Item::Class(class)));
        });
        let this = self.clone();
        self.pods.on_change(move |change| {
            let namespace = change.object().metadata.namespace.as_deref().unwrap_or_default();
            claims_of(change.object()).for_each(|name| this.add(Item::Claim(Key::new(namespace, &name))));
        });
        let this = self.clone();
        self.volumes.on_change(move |change| {
            let volume = change.object();
            volume.metadata.name.iter().for_each(|name| this.add(Item::Volume(name.clone())));
            let class = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
            class.into_iter().for_each(|class| this.add(Item::Class(class)));
        });
        let this = self.clone();
        self.classes.on_change(move |change| {
            change.object().metadata.name.iter().for_each(|name| this.add(Item::Class(name.clone())));
        });
    }

    fn add(&self, item: Item) {
        if item.is_of(self.protected) {
            self.queue.add(item);
        }
    }

    async fn sync(&self, item: &Item) -> Result<Requeue, kube::Error> {
        match item {
            Item::Claim(key) => {
                let waits =
                    self.claims.get(&key.namespace, &key.name).filter(|claim| is_waiting(claim.as_ref(), CLAIM));
                match waits {
                    Some(claim) if !self.is_mounted(key) => {
                        release(
                            Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace),
                            claim.as_ref(),
                            CLAIM,
                        )
                        .await
                    }
                    _ => Ok(Requeue::No),
                }
            }
            Item::Volume(name) => match self.volumes.get("", name).filter(|volume| is_waiting(volume.as_ref(), VOLUME))
            {
                Some(volume) if !is_bound(&volume) => {
                    release(Api::<PersistentVolume>::all(self.client.clone()), volume.as_ref(), VOLUME).await
                }
                _ => Ok(Requeue::No),
            },
            Item::Class(name) => match self.classes.get("", name).filter(|class| is_waiting(class.as_ref(), CLASS)) {
                Some(class) if !self.is_chosen(name) => {
                    release(Api::<VolumeAttributesClass>::all(self.client.clone()), class.as_ref(), CLASS).await
                }
                _ => Ok(Requeue::No),
            },
        }
    }

    /// Whether a pod on a node uses a claim. One that is not on a node yet never starts with a claim that is deleted.
    fn is_mounted(&self, key: &Key) -> bool {
        self.pods.list().iter().any(|pod| {
            pod.metadata.namespace.as_deref() == Some(&key.namespace)
                && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
                && claims_of(pod).any(|name| name == key.name)
        })
    }

    /// Whether a claim or a volume names a class.
    fn is_chosen(&self, name: &str) -> bool {
        let by_volume = |volume: &PersistentVolume| {
            volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()) == Some(name)
        };
        self.claims.list().iter().any(|claim| classes_of(claim).any(|class| class == name))
            || self.volumes.list().iter().any(|volume| by_volume(volume))
    }
}

/// The claims that a pod uses, those made for it included.
fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    })
}

fn classes_of(claim: &PersistentVolumeClaim) -> impl Iterator<Item = String> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    let current = claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.clone());
    let modified = claim.status.as_ref().and_then(|status| status.modify_volume_status.as_ref());
    let target = modified.and_then(|status| status.target_volume_attributes_class_name.clone());
    [wanted, current, target].into_iter().flatten()
}

fn is_bound(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether an object is deleted and only waits for us, among others.
fn is_waiting<K: Resource>(object: &K, finalizer: &str) -> bool {
    let meta = object.meta();
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().any(|known| known == finalizer)
}

/// Takes a finalizer away, if the object is still the one that was seen.
async fn release<K>(api: Api<K>, object: &K, finalizer: &str) -> Result<Requeue, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Serialize,
{
    let mut released = object.clone();
    released.meta_mut().finalizers.iter_mut().for_each(|known| known.retain(|name| name != finalizer));
    let name = object.meta().name.as_deref().unwrap_or_default();
    match api.replace(name, &PostParams::default(), &released).await {
        Ok(_) => Ok(Requeue::No),
        Err(error) if error.is_not_found() => Ok(Requeue::No),
        // A newer one is about to be seen.
        Err(error) if error.is_conflict() => Ok(Requeue::Retry),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_use_named_claims_and_those_made_for_them() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "ephemeral": {}}, {"name": "c", "emptyDir": {}}]}}))
        .unwrap();
        assert_eq!(claims_of(&pod).collect::<Vec<_>>(), ["data", "p-b"]);
    }

    #[test]
    fn only_what_is_deleted_waits() {
        let claim = |deleted: bool, finalizers: &[&str]| -> PersistentVolumeClaim {
            let mut claim = json!({"metadata": {"finalizers": finalizers}});
            if deleted {
                claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            serde_json::from_value(claim).unwrap()
        };
        assert!(is_waiting(&claim(true, &[CLAIM, "other"]), CLAIM));
        assert!(!is_waiting(&claim(false, &[CLAIM]), CLAIM) && !is_waiting(&claim(true, &["other"]), CLAIM));
    }
}
