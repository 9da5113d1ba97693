//! The reclaim policy `Recycle`: a pod empties the volume, which is then available again. Volumes of hostPath and NFS have it,
//! as upstream's do.
//!
//! A sync starts the pod, and the pod's events queue the volume again: nothing waits. A pod of that name that was not started
//! here is deleted and the recycling tried later, because its purpose is unknown.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::quantity::Quantity;
use client::{ApiErrorExt, EventRecorder};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Event, ObjectReference, PersistentVolume, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::PersistentVolumeBinder;
use crate::{object_key::ObjectKey, pod_availability::pod_phase, pod_claims::claim_ref_key, pod_view::PodView};

/// Namespace of the pods that recycle.
const NAMESPACE: &str = "default";
/// Prefix of their names, before that of the volume.
const NAME_PREFIX: &str = "recycler-for-";
const IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
const SCRIPT: &str = r#"test -e /scrub && find /scrub -mindepth 1 -delete && test -z "$(ls -A /scrub)" || exit 1"#;
/// Seconds that a pod has for each GiB of its volume.
const SECONDS_PER_GIB: i64 = 30;
const GIB: i64 = 1 << 30;

/// The pods that recycle volumes, by the volumes' names.
#[derive(Default)]
pub(super) struct RunningRecyclers(Mutex<HashMap<String, RunningRecycler>>);

struct RunningRecycler {
    /// The resource version of the pod that was created.
    created: u64,
    /// Reports the pod's events on the volume.
    _reporter: AbortOnDropHandle<()>,
}

/// The volume could not be emptied; upstream's message.
#[derive(Debug, thiserror::Error)]
#[error("Recycle failed: {0}")]
struct RecycleError(String);

impl RunningRecyclers {
    /// Forgets a volume that is gone.
    pub(super) fn forget(&self, volume: &str) {
        self.lock().remove(volume);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RunningRecycler>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the volume that a pod recycles.
pub(super) fn recycled_volume(pod: &PodView) -> Option<&str> {
    let name = pod.metadata.name.as_deref().filter(|_| pod.metadata.namespace.as_deref() == Some(NAMESPACE))?;
    name.strip_prefix(NAME_PREFIX)
}

impl PersistentVolumeBinder {
    /// Moves the recycling of a released volume on; returns whether it waits for nothing but events.
    pub(super) async fn recycle_volume(&self, volume: Arc<PersistentVolume>) -> Result<bool, kube::Error> {
        let users = self.users_of_volume(&volume);
        if !users.is_empty() {
            let message = format!("Volume is used by pods: {}", users.join(","));
            self.recorder.record_normal(volume.object_ref(&()), "VolumeFailedRecycle", message);
            return Ok(false);
        }
        let Some(pod) = recycler_pod(&volume) else {
            return self.fail_volume(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!").await;
        };
        let started = self.recyclers.lock().get(&volume.name_any()).map(|recycler| recycler.created);
        let result = match started {
            None => self.start_recycler(&volume, &pod).await.map(|()| false),
            Some(created) => self.check_recycled(&volume, created).await,
        };
        match result {
            Ok(false) => Ok(true),
            Ok(true) => {
                self.recorder.record_normal(volume.object_ref(&()), "VolumeRecycled", "Volume recycled");
                self.unbind_volume(&volume).await?;
                Ok(true)
            }
            Err(error) => self.fail_volume(volume, "VolumeFailedRecycle", &error.to_string()).await,
        }
    }

    /// The pods that use the volume by a claim of its name that is gone.
    fn users_of_volume(&self, volume: &PersistentVolume) -> Vec<String> {
        let Some(claim) = claim_ref_key(volume).filter(|claim| self.claims.get(claim).is_none()) else {
            return Vec::new();
        };
        self.pods_of_claim(&claim).iter().map(|pod| ObjectKey::from_object(pod.as_ref()).to_string()).collect()
    }

    async fn start_recycler(&self, volume: &PersistentVolume, pod: &Pod) -> Result<(), RecycleError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let created = match pods.create(&PostParams::default(), pod).await {
            Ok(created) => created.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0),
            Err(error) if error.is_already_exists() => {
                let name = pod.name_any();
                if let Err(error) = delete_pod(&pods, &name).await {
                    let reason = error.server_message();
                    return Err(RecycleError(format!(
                        "failed to delete old recycler pod {NAMESPACE}/{name}: {reason}"
                    )));
                }
                return Err(RecycleError("old recycler pod found, will retry later".into()));
            }
            Err(error) => {
                return Err(RecycleError(format!(
                    "unexpected error creating recycler pod:  {}",
                    error.server_message()
                )));
            }
        };
        let report =
            report_pod_events(self.client.clone(), self.recorder.clone(), volume.object_ref(&()), pod.name_any());
        let recycler = RunningRecycler { created, _reporter: AbortOnDropHandle::new(tokio::spawn(report)) };
        self.recyclers.lock().insert(volume.name_any(), recycler);
        Ok(())
    }

    /// Whether the pod has succeeded. The pod of a recycling that has ended is deleted.
    async fn check_recycled(&self, volume: &PersistentVolume, created: u64) -> Result<bool, RecycleError> {
        let name = format!("{NAME_PREFIX}{}", volume.name_any());
        let cached = self.pods.get(NAMESPACE, &name);
        let failure = match &cached {
            None if self.pods.latest_resource_version() < created => return Ok(false),
            None => Some("recycler pod was deleted".to_owned()),
            Some(pod) => match pod_phase(pod) {
                "Succeeded" => None,
                "Failed" => {
                    let message = pod.status.as_ref().and_then(|status| status.message.as_deref());
                    Some(message.unwrap_or("pod failed, pod.Status.Message unknown").to_owned())
                }
                _ => return Ok(false),
            },
        };
        self.recyclers.lock().remove(&volume.name_any());
        let deleted = delete_pod(&Api::namespaced(self.client.clone(), NAMESPACE), &name).await;
        match (failure, deleted) {
            (Some(failure), _) => Err(RecycleError(format!("failed to recycle volume: {failure}"))),
            (None, Err(error)) => {
                Err(RecycleError(format!("failed to delete recycler pod: {}", error.server_message())))
            }
            (None, Ok(())) => Ok(true),
        }
    }
}

async fn delete_pod(pods: &Api<Pod>, name: &str) -> Result<(), kube::Error> {
    match pods.delete(name, &DeleteParams::default()).await {
        Err(error) if error.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Repeats the events of a pod on the volume that it recycles, until it is aborted.
async fn report_pod_events(client: Client, recorder: EventRecorder, volume: ObjectReference, pod: String) {
    let events: Api<Event> = Api::namespaced(client, NAMESPACE);
    let of_pod = WatchParams::default().fields(&format!("involvedObject.name={pod}"));
    let result = async {
        let mut stream = std::pin::pin!(events.watch(&of_pod, "0").await?);
        while let Some(event) = stream.try_next().await? {
            let WatchEvent::Added(event) = event else { continue };
            let message = format!("Recycler pod: {}", event.message.unwrap_or_default());
            match event.type_.as_deref() {
                Some("Warning") => recorder.record_warning(volume.clone(), "RecyclerPod", message),
                _ => recorder.record_normal(volume.clone(), "RecyclerPod", message),
            }
        }
        Ok::<_, kube::Error>(())
    };
    if let Err(error) = result.await {
        tracing::debug!(pod, %error, "persistent volume binder: events of the recycler pod not watched, going on without");
    }
}

/// Builds the pod that empties a volume; `None` if its kind of volume cannot be recycled.
fn recycler_pod(volume: &PersistentVolume) -> Option<Pod> {
    let spec = volume.spec.as_ref()?;
    let (least_seconds, mut source): (i64, Value) = match (&spec.host_path, &spec.nfs) {
        (Some(source), _) => (60, json!({"hostPath": {"path": source.path}})),
        (None, Some(source)) => (300, json!({"nfs": {"server": source.server, "path": source.path}})),
        (None, None) => return None,
    };
    source["name"] = "vol".into();
    let size = spec.capacity.as_ref().and_then(|capacity| Quantity::parse(&capacity.get("storage")?.0));
    let seconds = size.map_or(0, |size| size.value() / GIB * SECONDS_PER_GIB).max(least_seconds);
    let container = json!({"name": "pv-recycler", "image": IMAGE, "command": ["/bin/sh"], "args": ["-c", SCRIPT],
        "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}]});
    let pod = json!({
        "metadata": {"name": format!("{NAME_PREFIX}{}", volume.name_any()), "namespace": NAMESPACE},
        "spec": {"activeDeadlineSeconds": seconds, "restartPolicy": "Never", "volumes": [source],
            "containers": [container]},
    });
    serde_json::from_value(pod).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(source: Value, size: &str) -> PersistentVolume {
        let mut volume = json!({"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": size}}});
        json_patch::merge(&mut volume["spec"], &source);
        serde_json::from_value(volume).unwrap()
    }

    #[test]
    fn pod_has_the_source_and_time_for_its_size() {
        let check = |source: Value, size: &str, seconds: i64| {
            let pod = json!(recycler_pod(&volume(source.clone(), size)).unwrap());
            assert_eq!(pod["metadata"]["name"], "recycler-for-pv");
            assert_eq!(pod["spec"]["activeDeadlineSeconds"], seconds);
            let mut expected = source;
            expected["name"] = "vol".into();
            assert_eq!(pod["spec"]["volumes"], json!([expected]));
        };
        check(json!({"hostPath": {"path": "/data"}}), "1Gi", 60);
        check(json!({"hostPath": {"path": "/data"}}), "10Gi", 300);
        check(json!({"nfs": {"server": "s", "path": "/p"}}), "5Gi", 300);
        assert!(recycler_pod(&volume(json!({"csi": {"driver": "d", "volumeHandle": "h"}}), "1Gi")).is_none());
    }

    #[test]
    fn only_pods_of_the_namespace_recycle() {
        let pod = |namespace: &str, name: &str| -> PodView {
            serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}})).unwrap()
        };
        assert_eq!(recycled_volume(&pod("default", "recycler-for-pv")), Some("pv"));
        assert_eq!(recycled_volume(&pod("other", "recycler-for-pv")), None);
        assert_eq!(recycled_volume(&pod("default", "web")), None);
    }
}
