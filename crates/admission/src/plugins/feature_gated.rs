//! Plug-ins whose feature gate is off in this version of Kubernetes. They are registered so that flags may name them,
//! and do nothing.

use crate::{Plugin, PluginDescriptor};

/// Requires the feature gate `GenericWorkload`.
pub const POD_GROUP_PROTECTION: PluginDescriptor = feature_gated_plugin("PodGroupProtection");
/// Requires the feature gate `GenericWorkload`.
pub const POD_GROUP_WORKLOAD_EXISTS: PluginDescriptor = feature_gated_plugin("PodGroupWorkloadExists");
/// Requires the feature gate `WorkloadWithJob`.
pub const JOB_VALIDATION: PluginDescriptor = feature_gated_plugin("JobValidation");

const fn feature_gated_plugin(name: &'static str) -> PluginDescriptor {
    PluginDescriptor { name, enabled_by_default: true, rules: &[], construct: |_| Ok(Box::new(FeatureGatedPlugin)) }
}

struct FeatureGatedPlugin;
impl Plugin for FeatureGatedPlugin {}
