//! Announces claims whose volume is to be expanded. External resizers expand the volumes; none of upstream's own volume
//! plug-ins does any more.

use api::quantity::Quantity;
use client::{EventRecorder, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client, Resource, ResourceExt};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    persistent_volume::matching::requested_storage,
};

struct VolumeExpander {
    client: Client,
    recorder: EventRecorder,
    claims: SharedInformer<PersistentVolumeClaim>,
}

/// A claim could not be synced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExpansionError {
    #[error("failed to get PV {0:?}: {1}")]
    Volume(String, kube::Error),
    #[error("persistent Volume is not bound to PVC being updated : {0}")]
    NotBound(ObjectKey),
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| VolumeExpander {
        recorder: EventRecorder::new(context.client.clone(), "volume_expand", None),
        claims: context.informers.informer_for(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for VolumeExpander {
    type Key = ObjectKey;
    type Error = ExpansionError;
    const WORKERS: usize = 10;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.claims, |_, event, queue| {
            let has_grown = match event {
                ResourceEvent::Added(_) => true,
                ResourceEvent::Updated { old, new } => {
                    requested_storage(new) > requested_storage(old) || claim_capacity(new) > claim_capacity(old)
                }
                ResourceEvent::Deleted(_) => false,
            };
            let claim = event.object();
            if has_grown && claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound")) {
                queue.add(ObjectKey::from_object(claim.as_ref()));
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, ExpansionError> {
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        if requested_storage(&claim) <= claim_capacity(&claim) {
            return Ok(RequeueAction::AwaitChange);
        }
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let volume = volumes.get(&name).await.map_err(|error| ExpansionError::Volume(name, error))?;
        let claim_ref = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if claim_ref.is_none_or(|reference| reference.uid != claim.metadata.uid) {
            return Err(ExpansionError::NotBound(key.clone()));
        }
        let message = "waiting for an external controller to expand this PVC";
        self.recorder.record_normal(claim.object_ref(&()), "ExternalExpanding", message);
        tracing::debug!(claim = claim.name_any(), "expander: waiting for an external resizer");
        Ok(RequeueAction::AwaitChange)
    }
}

fn claim_capacity(claim: &PersistentVolumeClaim) -> Quantity {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    capacity.and_then(|capacity| Quantity::parse(&capacity.0)).unwrap_or(Quantity::ZERO)
}
