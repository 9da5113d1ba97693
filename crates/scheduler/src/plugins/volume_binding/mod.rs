//! VolumeBinding: a pod fits where its volumes are or can be, and its claims are bound before the pod is.

mod assume_cache;
mod binder;
mod error;
mod matching;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use self::{
    binder::{PodClaims, PodVolumes, VolumeBinder},
    matching::volume_limit,
};
pub use self::{error::VolumeBindingError, matching::claim_class};
use crate::{
    config::plugin_args::VolumeBindingArgs,
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{
            CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreBindPlugin, PreFilterPlugin, PreFilterResult,
            ReservePlugin,
        },
        status::{Reasons, Status, StatusCode},
    },
    handle::SchedulerHandle,
    plugins::volume_restrictions::claim_not_found,
    views::node_info::NodeInfo,
    views::pod_info::PodInfo,
    views::pod_volumes::PodVolume,
};

/// The plug-in.
pub struct VolumeBinding {
    binder: VolumeBinder,
}

/// The claims of the pod, and what was found for them on each node.
#[derive(Clone)]
struct VolumeState {
    claims: Arc<PodClaims>,
    by_node: Arc<Mutex<HashMap<Arc<str>, PodVolumes>>>,
    all_bound: bool,
}

/// A claim that was not generated for the pod that refers to it.
pub fn check_owner(pod: &PodInfo, claim: &PersistentVolumeClaim) -> Result<(), VolumeBindingError> {
    let owners = claim.metadata.owner_references.iter().flatten();
    let is_owned = owners.into_iter().any(|owner| owner.controller == Some(true) && *owner.uid == *pod.uid);
    match is_owned {
        true => Ok(()),
        false => {
            let metadata = &claim.metadata;
            let [namespace, name] = [&metadata.namespace, &metadata.name].map(|text| text.as_deref().unwrap_or(""));
            Err(VolumeBindingError::NotOwned { claim: format!("{namespace}/{name}"), pod: pod.key().to_string() })
        }
    }
}

impl VolumeBinding {
    /// Creates the plug-in.
    pub fn new(args: &VolumeBindingArgs, handle: Arc<SchedulerHandle>) -> Self {
        Self { binder: VolumeBinder::new(args, handle) }
    }

    /// Checks that the pod's claims exist and are in order; returns whether it has any.
    fn check_claims(&self, pod: &PodInfo) -> Result<bool, VolumeBindingError> {
        let mut has_claims = false;
        for volume in &pod.class.volumes {
            let Some(name) = volume.claim_name(&pod.name) else { continue };
            has_claims = true;
            let is_ephemeral = matches!(volume, PodVolume::Ephemeral(_));
            let Some(claim) = self.binder.claims().informer().get(&pod.class.namespace, &name) else {
                return Err(match is_ephemeral {
                    true => VolumeBindingError::EphemeralClaimNotFound(name),
                    false => VolumeBindingError::ClaimNotFound(claim_not_found(&name)),
                });
            };
            if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
                let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or("");
                return Err(VolumeBindingError::ClaimLost { claim: name, volume: volume.into() });
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(VolumeBindingError::ClaimDeleted(name));
            }
            if is_ephemeral {
                check_owner(pod, &claim)?;
            }
        }
        Ok(has_claims)
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_reserve(&self) -> Option<&dyn ReservePlugin> {
        Some(self)
    }

    fn as_pre_bind(&self) -> Option<&dyn PreBindPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl PreFilterPlugin for VolumeBinding {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        if !self.check_claims(cycle.pod).map_err(|error| Status::unresolvable(error.to_string()))? {
            return Ok(PreFilterResult::Skip);
        }
        let claims = self.binder.claims_of(cycle.pod).map_err(|error| Status::error(error.to_string()))?;
        if claims.has_unbound_immediate {
            return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        state.write(VolumeState { claims: Arc::new(claims), by_node: Arc::default(), all_bound: false });
        Ok(PreFilterResult::AllNodes)
    }
}

impl FilterPlugin for VolumeBinding {
    fn filter(&self, _cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(state) = state.get::<VolumeState>() else { return Ok(()) };
        let (volumes, reasons) =
            self.binder.find_volumes(&state.claims, &node.node).map_err(|error| Status::error(error.to_string()))?;
        if !reasons.is_empty() {
            let reasons = Reasons::Many(reasons.into_iter().map(Into::into).collect());
            return Err(Status { code: StatusCode::UnschedulableAndUnresolvable, reasons, plugin: "" });
        }
        let mut by_node = state.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        by_node.insert(node.name().clone(), volumes);
        Ok(())
    }
}

impl ReservePlugin for VolumeBinding {
    fn reserve(&self, state: &mut CycleState, pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status> {
        let Some(state) = state.get_mut::<VolumeState>() else { return Ok(()) };
        let mut by_node = state.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        state.all_bound = match by_node.get_mut(node) {
            Some(volumes) => self.binder.assume_volumes(pod, node, volumes),
            None => true,
        };
        Ok(())
    }

    fn unreserve(&self, state: &CycleState, _pod: &Arc<PodInfo>, node: &Arc<str>) {
        let Some(state) = state.get::<VolumeState>() else { return };
        let by_node = state.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(volumes) = by_node.get(node) {
            self.binder.revert_volumes(volumes);
        }
    }
}

impl PreBindPlugin for VolumeBinding {
    fn needs_pre_bind(&self, state: &CycleState, _pod: &Arc<PodInfo>, _node: &Arc<str>) -> Result<bool, Status> {
        Ok(state.get::<VolumeState>().is_some_and(|state| !state.all_bound))
    }

    fn pre_bind<'a>(
        &'a self,
        state: &'a CycleState,
        pod: &'a Arc<PodInfo>,
        node: &'a Arc<str>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(state) = state.get::<VolumeState>().filter(|state| !state.all_bound) else { return Ok(()) };
            let volumes = {
                let by_node = state.by_node.lock().unwrap_or_else(PoisonError::into_inner);
                by_node.get(node).cloned()
            };
            let Some(volumes) = volumes else {
                return Err(Status::error(format!("no pod volume found for node {node:?}")));
            };
            self.binder.bind_volumes(pod, node, volumes).await.map_err(|error| Status::error(error.to_string()))
        })
    }
}

impl EnqueueExtensions for VolumeBinding {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let changed = ActionType::ADD.or(ActionType::UPDATE);
        vec![
            ClusterEvent::new(EventResource::StorageClass, changed),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, changed),
            ClusterEvent::new(EventResource::PersistentVolume, changed),
            ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL)),
            ClusterEvent::new(EventResource::CsiNode, changed),
            ClusterEvent::new(EventResource::CsiDriver, ActionType::UPDATE),
            ClusterEvent::new(EventResource::CsiStorageCapacity, changed),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::CsiNode(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => {
                    let migrated = |node: &k8s_openapi::api::storage::v1::CSINode| {
                        let key = "storage.alpha.kubernetes.io/migrated-plugins";
                        matching::annotation(node.metadata.annotations.as_ref(), key).cloned()
                    };
                    migrated(old) != migrated(new)
                }
                _ => true,
            },
            EventObject::PersistentVolumeClaim(change) => change.new.as_ref().is_some_and(|claim| {
                let is_own = |volume: &PodVolume| {
                    volume.claim_name(&pod.name).is_some_and(|name| Some(&name) == claim.metadata.name.as_ref())
                };
                claim.metadata.namespace.as_deref() == Some(&*pod.class.namespace)
                    && pod.class.volumes.iter().any(is_own)
            }),
            EventObject::StorageClass(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.allowed_topologies != new.allowed_topologies,
                _ => true,
            },
            EventObject::CsiStorageCapacity(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => match (volume_limit(old), volume_limit(new)) {
                    (Some(old), Some(new)) => new.value() > old.value(),
                    (None, Some(_)) => true,
                    _ => false,
                },
                _ => true,
            },
            EventObject::CsiDriver(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => {
                    let name = new.metadata.name.as_deref().unwrap_or("");
                    let is_used = |volume: &PodVolume| matches!(volume, PodVolume::Csi(driver) if **driver == *name);
                    old.spec.storage_capacity == Some(true)
                        && new.spec.storage_capacity != Some(true)
                        && pod.class.volumes.iter().any(is_used)
                }
                _ => true,
            },
            _ => true,
        })
    }

    fn hints_by_class(&self) -> bool {
        false
    }
}
