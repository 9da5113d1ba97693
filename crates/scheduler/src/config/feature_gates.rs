//! Feature gates of the scheduler: which can be turned on or off, and which only have their default here.

use std::collections::BTreeMap;

/// Gates that have an effect, with their defaults.
const SWITCHES: [(&str, bool); 9] = [
    ("DRAConsumableCapacity", true),
    ("DRADeviceBindingConditions", true),
    ("DRADeviceTaints", true),
    ("DRAExtendedResource", true),
    ("DRASchedulerFilterTimeout", true),
    ("GangScheduling", false),
    ("GenericWorkload", false),
    ("NodeDeclaredFeatures", true),
    ("SchedulerPopFromBackoffQ", true),
];

/// Gates that upstream's scheduler reads and that have their default here, whatever is asked for.
const FIXED: [(&str, bool); 27] = [
    ("DRAAdminAccess", true),
    ("DRAListTypeAttributes", false),
    ("DRANodeAllocatableResources", false),
    ("DRAPartitionableDevices", true),
    ("DRAPrioritizedList", true),
    ("DRAResourceClaimDeviceStatus", true),
    ("DRAWorkloadResourceClaims", false),
    ("DynamicResourceAllocation", true),
    ("InPlacePodLevelResourcesVerticalScaling", true),
    ("InPlacePodVerticalScaling", true),
    ("MatchLabelKeysInPodTopologySpread", true),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", true),
    ("MutableCSINodeAllocatableCount", true),
    ("NodeInclusionPolicyInPodTopologySpread", true),
    ("NominatedNodeNameForExpectation", true),
    ("PodLevelResources", true),
    ("PodObservedGenerationTracking", true),
    ("SchedulerAsyncAPICalls", false),
    ("SchedulerAsyncPreemption", true),
    ("SchedulerQueueingHints", true),
    ("SidecarContainers", true),
    ("StorageCapacityScoring", false),
    ("TaintTolerationComparisonOperators", false),
    ("TopologyAwareWorkloadScheduling", false),
    ("VolumeAttributesClass", true),
    ("VolumeLimitScaling", false),
    ("WorkloadAwarePreemption", false),
];

/// Gates that need others.
const DEPENDENCIES: [(&str, &str); 1] = [("GangScheduling", "GenericWorkload")];

/// A gate that cannot be set as asked for.
#[derive(Debug, thiserror::Error)]
pub enum FeatureGateError {
    /// The text is not a list of `name=true|false`.
    #[error("invalid value of {0}: expected NAME=true or NAME=false")]
    Form(String),
    /// The scheduler does not support the value.
    #[error("feature gate {name}={wanted} is not supported by this scheduler, it is always {fixed}", fixed = !*wanted)]
    Unsupported {
        /// The gate.
        name: String,
        /// The value that was asked for.
        wanted: bool,
    },
    /// A gate that another one needs is off.
    #[error("{name} is enabled, but depends on features that are disabled: [{dependency}]")]
    Dependency {
        /// The gate.
        name: &'static str,
        /// The gates that it depends on.
        dependency: &'static str,
    },
}

/// The features of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerFeatures(BTreeMap<&'static str, bool>);

impl Default for SchedulerFeatures {
    fn default() -> Self {
        Self(SWITCHES.into())
    }
}

impl SchedulerFeatures {
    /// Parses `name=true,other=false`, each name possibly with `component:` before it. Gates of other components are left out.
    pub fn parse(text: &str) -> Result<Self, FeatureGateError> {
        let mut features = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let form = || FeatureGateError::Form(entry.to_owned());
            let (name, value) = entry.split_once('=').ok_or_else(form)?;
            let name = name.split_once(':').map_or(name, |(_, name)| name);
            let wanted = match value.to_ascii_lowercase().as_str() {
                "true" | "t" | "1" => true,
                "false" | "f" | "0" => false,
                _ => return Err(form()),
            };
            if let Some((known, _)) = SWITCHES.iter().find(|(known, _)| *known == name) {
                features.0.insert(known, wanted);
            } else if FIXED.iter().any(|(known, default)| *known == name && *default != wanted) {
                return Err(FeatureGateError::Unsupported { name: name.to_owned(), wanted });
            }
        }
        let unmet = |(name, dependency): &(&str, &str)| features.is_enabled(name) && !features.is_enabled(dependency);
        match DEPENDENCIES.iter().find(|dependency| unmet(dependency)) {
            Some((name, dependency)) => Err(FeatureGateError::Dependency { name, dependency }),
            None => Ok(features),
        }
    }

    /// Whether a feature is on.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_switched_or_refused_by_name() {
        let features =
            SchedulerFeatures::parse("DRADeviceTaints=false, kube:NodeDeclaredFeatures=False,Other=true").unwrap();
        assert!(!features.is_enabled("DRADeviceTaints") && !features.is_enabled("NodeDeclaredFeatures"));
        assert!(features.is_enabled("DRAExtendedResource"));
        assert_eq!(SchedulerFeatures::parse("GangScheduling=false").unwrap(), SchedulerFeatures::default());
        let error = SchedulerFeatures::parse("WorkloadAwarePreemption=true").unwrap_err().to_string();
        let expected =
            "feature gate WorkloadAwarePreemption=true is not supported by this scheduler, it is always false";
        assert_eq!(error, expected);
        let error = SchedulerFeatures::parse("GangScheduling=true").unwrap_err().to_string();
        assert_eq!(error, "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]");
        assert!(SchedulerFeatures::parse("GangScheduling=true,GenericWorkload=true").is_ok());
        assert!(SchedulerFeatures::parse("DRADeviceTaints").is_err());
    }
}
