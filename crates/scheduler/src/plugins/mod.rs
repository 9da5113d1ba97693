//! The plug-ins, one file or folder each, and the table that makes them by name.

pub mod balanced_allocation;
pub mod default_binder;
pub mod dynamic_resources;
pub mod gang_scheduling;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_topology_spread;
pub mod priority_sort;
pub mod resource_scorers;
pub mod scheduling_gates;
pub mod taint_toleration;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use std::sync::Arc;

use crate::{
    config::{ConfigError, SchedulerProfile, plugin_args::NodeResourcesFitArgs},
    framework::extension_points::Plugin,
    handle::SchedulerHandle,
    preemption::DefaultPreemption,
};

/// Makes a plug-in of a profile.
pub fn new_plugin(
    name: &str,
    profile: &SchedulerProfile,
    handle: &Arc<SchedulerHandle>,
    ignored_resources: &[String],
) -> Result<Arc<dyn Plugin>, ConfigError> {
    let objects = || handle.objects.clone();
    Ok(match name {
        "SchedulingGates" => Arc::new(scheduling_gates::SchedulingGates),
        "PrioritySort" => Arc::new(priority_sort::PrioritySort),
        "NodeUnschedulable" => Arc::new(node_unschedulable::NodeUnschedulable),
        "NodeName" => Arc::new(node_name::NodeName),
        "TaintToleration" => Arc::new(taint_toleration::TaintToleration),
        "NodeAffinity" => Arc::new(node_affinity::NodeAffinity::new(&profile.args(name)?)),
        "NodePorts" => Arc::new(node_ports::NodePorts),
        "NodeResourcesFit" => {
            let mut args: NodeResourcesFitArgs = profile.args(name)?;
            args.ignored_resources.extend_from_slice(ignored_resources);
            Arc::new(node_resources_fit::NodeResourcesFit::new(args, objects().device_classes))
        }
        "VolumeRestrictions" => Arc::new(volume_restrictions::VolumeRestrictions::new(objects().claims)),
        "NodeVolumeLimits" => Arc::new(node_volume_limits::NodeVolumeLimits::new(objects())),
        "VolumeBinding" => Arc::new(volume_binding::VolumeBinding::new(&profile.args(name)?, handle.clone())),
        "VolumeZone" => Arc::new(volume_zone::VolumeZone::new(objects())),
        "PodTopologySpread" => {
            Arc::new(pod_topology_spread::PodTopologySpread::new(profile.args(name)?, objects().workloads))
        }
        "InterPodAffinity" => {
            Arc::new(inter_pod_affinity::InterPodAffinity::new(profile.args(name)?, objects().namespaces))
        }
        "DynamicResources" => Arc::new(dynamic_resources::DynamicResources::new(&profile.args(name)?, handle.clone())),
        "DefaultPreemption" => Arc::new(DefaultPreemption::new(profile.args(name)?, handle.clone())),
        "NodeResourcesBalancedAllocation" => {
            Arc::new(balanced_allocation::BalancedAllocation::new(profile.args(name)?))
        }
        "ImageLocality" => Arc::new(image_locality::ImageLocality),
        "DefaultBinder" => Arc::new(default_binder::DefaultBinder::new(handle.client.clone())),
        "GangScheduling" => Arc::new(gang_scheduling::GangScheduling::new(handle.clone())),
        "NodeDeclaredFeatures" => Arc::new(node_declared_features::NodeDeclaredFeatures),
        name => return Err(ConfigError::Invalid(format!("plugin {name:?} does not exist"))),
    })
}
