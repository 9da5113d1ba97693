//! Creates the claims of generic ephemeral volumes, owned by their pods.

use client::{EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::{
    api::core::v1::{EphemeralVolumeSource, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref::{controller_of, new_controller_ref},
    object_key::ObjectKey,
    pod_claims::{PODS_BY_CLAIM, index_pods_by_claim},
    pod_view::PodView,
};

struct EphemeralVolumeController {
    client: Client,
    recorder: EventRecorder,
    pods: SharedInformer<PodView>,
    claims: SharedInformer<PersistentVolumeClaim>,
}

/// The claim of an ephemeral volume cannot be used or created; the message of the event.
#[derive(Debug, thiserror::Error)]
#[error("ephemeral volume {volume}: {reason}")]
pub(crate) struct EphemeralVolumeError {
    volume: String,
    reason: String,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| EphemeralVolumeController {
        recorder: EventRecorder::new(context.client.clone(), "ephemeral_volume", None),
        pods: context.informers.informer_for(),
        claims: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for EphemeralVolumeController {
    type Key = ObjectKey;
    type Error = EphemeralVolumeError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_pods_by_claim(&self.pods);
        // The volumes of a pod never change.
        watches.add(&self.pods, |_, event, queue| {
            if let ResourceEvent::Added(pod) = event {
                enqueue_pod(queue, pod);
            }
        });
        watches.add(&self.claims, |this, event, queue| {
            if let ResourceEvent::Deleted(claim) = event {
                let key = ObjectKey::from_object(claim.as_ref()).to_string();
                this.pods.by_index(PODS_BY_CLAIM, &key).iter().for_each(|pod| enqueue_pod(queue, pod));
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, EphemeralVolumeError> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        if pod.metadata.deletion_timestamp.is_none() {
            for (volume, source) in ephemeral_volumes(&pod) {
                if let Err(reason) = self.ensure_claim(&pod, volume, source).await {
                    let error = EphemeralVolumeError { volume: volume.to_owned(), reason };
                    self.recorder.record_warning(pod.object_ref(&()), "FailedBinding", error.to_string());
                    return Err(error);
                }
            }
        }
        Ok(RequeueAction::AwaitChange)
    }
}

impl EphemeralVolumeController {
    async fn ensure_claim(&self, pod: &PodView, volume: &str, source: &EphemeralVolumeSource) -> Result<(), String> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), format!("{}-{volume}", pod.name_any()));
        if let Some(claim) = self.claims.get(&namespace, &name) {
            let is_owner =
                controller_of(&claim.metadata).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
            let pod = pod.name_any();
            return match is_owner {
                true => Ok(()),
                false => {
                    Err(format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"))
                }
            };
        }
        let template = source.volume_claim_template.clone().unwrap_or_default();
        let meta = template.metadata.unwrap_or_default();
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(vec![new_controller_ref(pod)]),
                annotations: meta.annotations,
                labels: meta.labels,
                ..Default::default()
            },
            spec: Some(template.spec),
            status: None,
        };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        let created = api.create(&PostParams::default(), &claim).await;
        created.map(drop).map_err(|error| format!("create PVC {name}: {}", client::ApiErrorExt::server_message(&error)))
    }
}

fn enqueue_pod(queue: &WorkQueue<ObjectKey>, pod: &PodView) {
    if pod.metadata.deletion_timestamp.is_none() && ephemeral_volumes(pod).next().is_some() {
        queue.add(ObjectKey::from_object(pod));
    }
}

/// Names and sources of a pod's generic ephemeral volumes.
fn ephemeral_volumes(pod: &PodView) -> impl Iterator<Item = (&str, &EphemeralVolumeSource)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some((volume.name.as_str(), volume.ephemeral.as_deref()?)))
}
