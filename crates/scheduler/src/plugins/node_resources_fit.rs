//! NodeResourcesFit: a node must have what the pod requests, and is scored by how much of it is free or used.

use std::{borrow::Cow, sync::Arc};

use crate::{
    config::plugin_args::NodeResourcesFitArgs,
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin, ScorePlugin},
        status::{Reasons, Status, StatusCode},
    },
    objects::device_classes::DeviceClassResolver,
    plugins::resource_scorers::{fit_request, resource_share, score_by_strategy},
    views::node_info::{NodeInfo, NodeView},
    views::pod_info::{PodClass, PodInfo},
    views::resources::{Resource, is_extended_resource},
};

/// The plug-in.
pub struct NodeResourcesFit {
    args: NodeResourcesFitArgs,
    device_classes: DeviceClassResolver,
}

impl NodeResourcesFit {
    /// Creates the plug-in. Extended resources that devices provide are left to `DynamicResources`.
    pub fn new(args: NodeResourcesFitArgs, device_classes: DeviceClassResolver) -> Self {
        Self { args, device_classes }
    }

    fn is_ignored(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or(name, |(group, _)| group);
        is_extended_resource(name)
            && (self.args.ignored_resources.iter().any(|ignored| ignored == name)
                || self.args.ignored_resource_groups.iter().any(|ignored| ignored == group))
    }

    /// Whether devices provide a resource that the node does not have.
    fn is_left_to_devices(&self, name: &str, allocatable: &Resource) -> bool {
        allocatable.scalar(name) == 0 && self.device_classes.provides(name)
    }

    /// Returns why a pod with these requests does not fit: reasons, and whether an empty node would not do either.
    fn insufficient_resources(&self, requests: &Resource, node: &NodeInfo) -> (Vec<Cow<'static, str>>, bool) {
        let (allocatable, used) = (&node.node.allocatable, &node.requested);
        let (mut reasons, mut is_unresolvable) = (Vec::new(), false);
        if node.pods.len() as i64 + 1 > allocatable.allowed_pods {
            reasons.push("Too many pods".into());
        }
        let mut check = |name: &str, request: i64, total: i64, used: i64| {
            if request > 0 && request > total - used {
                reasons.push(match name {
                    "cpu" => "Insufficient cpu".into(),
                    "memory" => "Insufficient memory".into(),
                    name => format!("Insufficient {name}").into(),
                });
                is_unresolvable |= request > total;
            }
        };
        check("cpu", requests.milli_cpu, allocatable.milli_cpu, used.milli_cpu);
        check("memory", requests.memory, allocatable.memory, used.memory);
        check("ephemeral-storage", requests.ephemeral_storage, allocatable.ephemeral_storage, used.ephemeral_storage);
        for (name, request) in &requests.scalars {
            if *request != 0 && !self.is_ignored(name) && !self.is_left_to_devices(name, allocatable) {
                check(name, *request, allocatable.scalar(name), used.scalar(name));
            }
        }
        (reasons, is_unresolvable)
    }

    /// Whether the pod fits on the node if no other pod is there.
    fn fits_empty(&self, class: &PodClass, node: &Arc<NodeView>) -> bool {
        self.insufficient_resources(&class.requests.of_spec, &NodeInfo::new(node.clone())).0.is_empty()
    }

    fn has_more(&self, class: &PodClass, old: &NodeView, new: &NodeView) -> bool {
        let (requests, old, new) = (&class.requests.of_spec, &old.allocatable, &new.allocatable);
        new.allowed_pods > old.allowed_pods
            || requests.milli_cpu > 0 && new.milli_cpu > old.milli_cpu
            || requests.memory > 0 && new.memory > old.memory
            || requests.ephemeral_storage > 0 && new.ephemeral_storage > old.ephemeral_storage
            || requests.scalars.iter().any(|(name, request)| {
                *request != 0 && (new.scalar(name) > old.scalar(name) || self.is_left_to_devices(name, new))
            })
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl FilterPlugin for NodeResourcesFit {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let (mut reasons, is_unresolvable) = self.insufficient_resources(&cycle.pod.class.requests.of_spec, node);
        let Some(last) = reasons.pop() else { return Ok(()) };
        let code = if is_unresolvable { StatusCode::UnschedulableAndUnresolvable } else { StatusCode::Unschedulable };
        let reasons = match reasons.is_empty() {
            true => Reasons::One(last),
            false => Reasons::Many(reasons.into_iter().chain([last]).collect()),
        };
        Err(Status { code, reasons, plugin: "" })
    }

    /// Extended resources may be left to devices, whose classes change.
    fn filters_by_class(&self, class: &PodClass) -> bool {
        class.requests.of_spec.scalars.is_empty()
    }
}

impl ScorePlugin for NodeResourcesFit {
    fn score(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let strategy = &self.args.scoring_strategy;
        let requests = &cycle.pod.class.requests;
        let share = |resource: &crate::config::plugin_args::ResourceSpec| {
            let request = fit_request(requests, &resource.name);
            resource_share(node, &resource.name, request, resource.weight, false)
        };
        // Two resources are the default; more need not be fast.
        Ok(match strategy.resources.as_slice() {
            [a, b] => score_by_strategy(strategy, &[share(a), share(b)]),
            all => score_by_strategy(strategy, &all.iter().map(share).collect::<Vec<_>>()),
        })
    }

    fn scores_by_class(&self) -> bool {
        true
    }
}

impl EnqueueExtensions for NodeResourcesFit {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Pod, ActionType::DELETE.or(ActionType::UPDATE_POD_SCALE_DOWN)),
            ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_ALLOCATABLE)),
            ClusterEvent::new(EventResource::DeviceClass, ActionType::ADD.or(ActionType::UPDATE)),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::Pod(change) => match (&change.old, &change.new) {
                (Some(old), None) => old.node_name.is_some() || old.nominated_node_name.is_some(),
                (_, Some(new)) if new.uid == pod.uid => true,
                (Some(old), Some(new)) => new.node_name.is_some() && frees_requested(pod, old, new),
                _ => true,
            },
            EventObject::Node(change) => match (&change.old, &change.new) {
                (old, Some(new)) => {
                    self.fits_empty(&pod.class, new)
                        && old.as_ref().is_none_or(|old| self.has_more(&pod.class, old, new))
                }
                _ => false,
            },
            EventObject::DeviceClass(change) => {
                let names = |class: &Arc<_>| DeviceClassResolver::resource_names(class);
                let (old, new) = (change.old.as_ref().map(names), change.new.as_ref().map(names));
                old != new
                    && new.is_some_and(|names| names.iter().any(|name| pod.class.requests.of_spec.has_scalar(name)))
            }
            _ => true,
        })
    }
}

/// Whether a pod that was scaled down frees a resource that the waiting pod requests.
fn frees_requested(pod: &PodInfo, old: &PodInfo, new: &PodInfo) -> bool {
    let requests = &pod.class.requests.allocated;
    let (old, new) = (&old.class.requests.allocated, &new.class.requests.allocated);
    requests.milli_cpu != 0 && old.milli_cpu > new.milli_cpu
        || requests.memory != 0 && old.memory > new.memory
        || requests.ephemeral_storage != 0 && old.ephemeral_storage > new.ephemeral_storage
        || requests.scalars.iter().any(|(name, amount)| *amount != 0 && old.scalar(name) > new.scalar(name))
}
