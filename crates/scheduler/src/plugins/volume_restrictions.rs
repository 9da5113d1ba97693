//! VolumeRestrictions: disks that one pod excludes others from, and claims with the access mode ReadWriteOncePod.

use std::sync::Arc;

use client::SharedInformer;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{
            CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreFilterExtensions, PreFilterPlugin,
            PreFilterResult,
        },
        status::Status,
    },
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
    views::pod_volumes::{ExclusiveDisk, PodVolume},
};

/// The plug-in.
pub struct VolumeRestrictions {
    claims: SharedInformer<PersistentVolumeClaim>,
}

impl VolumeRestrictions {
    /// Creates the plug-in.
    pub fn new(claims: SharedInformer<PersistentVolumeClaim>) -> Self {
        Self { claims }
    }
}

/// Claims that allow one pod, and how many other pods use them.
#[derive(Clone)]
struct ExclusiveClaims {
    names: Arc<[Arc<str>]>,
    users: i64,
}

/// The disks of a class that exclude other pods.
fn exclusive_disks(class: &PodClass) -> impl Iterator<Item = &ExclusiveDisk> {
    class.volumes.iter().filter_map(|volume| match volume {
        PodVolume::ExclusiveDisk(ExclusiveDisk::AzureDisk(_)) => None,
        PodVolume::ExclusiveDisk(disk) => Some(disk),
        _ => None,
    })
}

fn claim_names(class: &PodClass) -> impl Iterator<Item = &Arc<str>> {
    class.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Claim(name) => Some(name),
        _ => None,
    })
}

fn disks_conflict(class: &PodClass, other: &PodClass) -> bool {
    exclusive_disks(class).any(|disk| exclusive_disks(other).any(|used| disk.conflicts_with(used)))
}

/// The message of the API server for a claim that does not exist.
pub fn claim_not_found(name: &str) -> String {
    format!("persistentvolumeclaim {name:?} not found")
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
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

impl PreFilterPlugin for VolumeRestrictions {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        let class = &cycle.pod.class;
        let mut names = Vec::new();
        for name in claim_names(class) {
            let Some(claim) = self.claims.get(&class.namespace, name) else {
                return Err(Status::unresolvable(claim_not_found(name)));
            };
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            if modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod")) {
                names.push(name.clone());
            }
        }
        let is_used = |name: &&Arc<str>| {
            let mut classes = cycle.snapshot.nodes().iter().flat_map(|node| &node.classes).map(|count| &count.class);
            classes.any(|other| other.namespace == class.namespace && claim_names(other).any(|used| used == *name))
        };
        let users = names.iter().filter(is_used).count() as i64;
        if users == 0 && exclusive_disks(class).next().is_none() {
            return Ok(PreFilterResult::Skip);
        }
        state.write(ExclusiveClaims { names: names.into(), users });
        Ok(PreFilterResult::AllNodes)
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl ExclusiveClaims {
    fn count_users(&self, pod: &PodInfo) -> i64 {
        claim_names(&pod.class).filter(|name| self.names.contains(name)).count() as i64
    }
}

impl PreFilterExtensions for VolumeRestrictions {
    fn add_pod(&self, _cycle: CycleContext<'_>, state: &mut CycleState, added: &PodInfo, _node: &NodeInfo) {
        if let Some(claims) = state.get_mut::<ExclusiveClaims>() {
            claims.users += claims.count_users(added);
        }
    }

    fn remove_pod(&self, _cycle: CycleContext<'_>, state: &mut CycleState, removed: &PodInfo, _node: &NodeInfo) {
        if let Some(claims) = state.get_mut::<ExclusiveClaims>() {
            claims.users -= claims.count_users(removed);
        }
    }
}

impl FilterPlugin for VolumeRestrictions {
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        if node.classes.iter().any(|count| disks_conflict(&cycle.pod.class, &count.class)) {
            return Err(Status::unschedulable("node(s) had no available disk"));
        }
        match state.get::<ExclusiveClaims>().is_some_and(|claims| claims.users > 0) {
            false => Ok(()),
            true => Err(Status::unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            )),
        }
    }
}

impl EnqueueExtensions for VolumeRestrictions {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Pod, ActionType::DELETE),
            ClusterEvent::new(EventResource::Node, ActionType::ADD),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, ActionType::ADD),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let class = &pod.class;
        QueueingHint::queue_if(match object {
            EventObject::Pod(change) => change.old.as_ref().is_some_and(|deleted| {
                let shares = claim_names(class).any(|name| claim_names(&deleted.class).any(|other| other == name));
                deleted.class.namespace == class.namespace && (disks_conflict(class, &deleted.class) || shares)
            }),
            EventObject::PersistentVolumeClaim(change) => change.new.as_ref().is_some_and(|claim| {
                let name = claim.metadata.name.as_deref().unwrap_or("");
                claim.metadata.namespace.as_deref() == Some(&*class.namespace)
                    && claim_names(class).any(|own| **own == *name)
            }),
            _ => true,
        })
    }
}
