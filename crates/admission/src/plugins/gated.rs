//! Plug-ins whose feature gate is off in this version of Kubernetes. They are registered so that flags may name them,
//! and do nothing.

use crate::{Plugin, PluginDescriptor};

/// Requires the feature gate `GenericWorkload`.
pub const POD_GROUP_PROTECTION: PluginDescriptor = row("PodGroupProtection");
/// Requires the feature gate `GenericWorkload`.
pub const POD_GROUP_WORKLOAD_EXISTS: PluginDescriptor = row("PodGroupWorkloadExists");
/// Requires the feature gate `WorkloadWithJob`.
pub const JOB_VALIDATION: PluginDescriptor = row("JobValidation");

const fn row(name: &'static str) -> PluginDescriptor {
    PluginDescriptor { name, on: true, about: &[], make: |_| Ok(Box::new(Gated)) }
}

struct Gated;
impl Plugin for Gated {}
