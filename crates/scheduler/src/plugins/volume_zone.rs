//! VolumeZone: a pod fits on nodes in the zones and regions of its bound volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreFilterResult},
        status::Status,
    },
    objects::ClusterObjects,
    plugins::{volume_binding::claim_class, volume_restrictions::claim_not_found},
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
    views::pod_volumes::PodVolume,
};

const TOPOLOGY_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The plug-in.
pub struct VolumeZone {
    objects: ClusterObjects,
}

/// A label that the node must have, with the values that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ZoneDemand {
    key: &'static str,
    stable_key: &'static str,
    values: Vec<String>,
}

/// The demands of the pod's volumes.
#[derive(Clone)]
struct ZoneDemands(Arc<[ZoneDemand]>);

impl VolumeZone {
    /// Creates the plug-in.
    pub fn new(objects: ClusterObjects) -> Self {
        Self { objects }
    }

    fn demands(&self, class: &PodClass) -> Result<Vec<ZoneDemand>, Status> {
        let mut demands = Vec::new();
        for name in class.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Claim(name) => Some(name),
            _ => None,
        }) {
            let claim = self.objects.claims.get(&class.namespace, name);
            let claim = claim.ok_or_else(|| Status::unresolvable(claim_not_found(name)))?;
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or("");
            if volume.is_empty() {
                self.check_unbound(&claim_class(&claim))?;
                continue;
            }
            let found = self.objects.volumes.get("", volume);
            let found = found.ok_or_else(|| Status::unresolvable(format!("persistentvolume {volume:?} not found")))?;
            demands.extend(volume_demands(&found));
        }
        Ok(demands)
    }

    /// A claim without volume is in order if it waits for its first consumer.
    fn check_unbound(&self, class_name: &str) -> Result<(), Status> {
        if class_name.is_empty() {
            return Err(Status::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
        }
        let Some(class) = self.objects.storage_classes.get("", class_name) else {
            let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
            return Err(Status::unresolvable(message));
        };
        match class.volume_binding_mode.as_deref() {
            None => {
                let message = format!("VolumeBindingMode not set for StorageClass {class_name:?}");
                Err(Status::unresolvable(message))
            }
            Some("WaitForFirstConsumer") => Ok(()),
            Some(_) => Err(Status::unresolvable("PersistentVolume had no name")),
        }
    }
}

fn volume_demands(volume: &PersistentVolume) -> Vec<ZoneDemand> {
    let labels = volume.metadata.labels.as_ref();
    let demand = |(key, stable_key): (&'static str, &'static str)| {
        let text = labels?.get(key)?;
        let values: Vec<String> = text.split("__").map(|value| value.trim().to_owned()).collect();
        (!values.iter().any(String::is_empty)).then_some(ZoneDemand { key, stable_key, values })
    };
    TOPOLOGY_LABELS.into_iter().filter_map(demand).collect()
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl PreFilterPlugin for VolumeZone {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        let demands = self.demands(&cycle.pod.class)?;
        if demands.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        state.write(ZoneDemands(demands.into()));
        Ok(PreFilterResult::AllNodes)
    }
}

impl FilterPlugin for VolumeZone {
    fn filter(&self, _cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(ZoneDemands(demands)) = state.get() else { return Ok(()) };
        let labels = &node.node.labels;
        if !TOPOLOGY_LABELS.iter().any(|(key, _)| labels.get(key).is_some()) {
            return Ok(());
        }
        let is_met = |demand: &ZoneDemand| {
            let value = labels.get(demand.key).or_else(|| labels.get(demand.stable_key));
            value.is_some_and(|value| demand.values.iter().any(|wanted| **wanted == **value))
        };
        match demands.iter().all(is_met) {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) had no available volume zone")),
        }
    }
}

impl EnqueueExtensions for VolumeZone {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::StorageClass, ActionType::ADD),
            ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL)),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, ActionType::ADD.or(ActionType::UPDATE)),
            ClusterEvent::new(EventResource::PersistentVolume, ActionType::ADD.or(ActionType::UPDATE)),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::PersistentVolumeClaim(change) => change.new.as_ref().is_some_and(|claim| {
                let name = claim.metadata.name.as_deref().unwrap_or("");
                let is_own = |volume: &PodVolume| matches!(volume, PodVolume::Claim(own) if **own == *name);
                claim.metadata.namespace.as_deref() == Some(&*pod.class.namespace)
                    && pod.class.volumes.iter().any(is_own)
            }),
            EventObject::StorageClass(change) => change
                .new
                .as_ref()
                .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")),
            EventObject::PersistentVolume(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => volume_demands(old) != volume_demands(new),
                _ => true,
            },
            _ => true,
        })
    }
}
