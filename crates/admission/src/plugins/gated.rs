//! Plug-ins that only do something while a feature is on which is off in this version of Kubernetes. Their names are known,
//! so that flags that name them are understood.

use crate::{Plugin, PluginDescriptor};

/// Needs the feature `GenericWorkload`.
pub const POD_GROUP_PROTECTION: PluginDescriptor = row("PodGroupProtection");
/// Needs the feature `GenericWorkload`.
pub const POD_GROUP_WORKLOAD_EXISTS: PluginDescriptor = row("PodGroupWorkloadExists");
/// Needs the feature `WorkloadWithJob`.
pub const JOB_VALIDATION: PluginDescriptor = row("JobValidation");

const fn row(name: &'static str) -> PluginDescriptor {
    PluginDescriptor { name, on: true, about: &[], make: |_| Ok(Box::new(Gated)) }
}

struct Gated;
impl Plugin for Gated {}
