//! Arguments of plug-ins, with upstream's defaults.

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use serde::Deserialize;

/// Arguments of `NodeAffinity`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAffinityArgs {
    /// Affinity that is added to that of every pod.
    pub added_affinity: Option<NodeAffinity>,
}

/// A resource with its weight.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpec {
    /// The resource.
    pub name: String,
    /// Its weight; 1 if it is not given.
    #[serde(default = "default_weight")]
    pub weight: i64,
}

fn default_weight() -> i64 {
    1
}

fn default_resources() -> Vec<ResourceSpec> {
    ["cpu", "memory"].map(|name| ResourceSpec { name: name.into(), weight: 1 }).into()
}

/// Scoring strategy of `NodeResourcesFit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the names are upstream's")]
pub enum ScoringStrategyType {
    #[default]
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
}

/// A point of a broken linear function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct UtilizationShapePoint {
    /// Percentage.
    #[serde(default)]
    pub utilization: i32,
    /// From 0 to 10.
    #[serde(default)]
    pub score: i32,
}

/// The shape of `RequestedToCapacityRatio`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RatioParameters {
    /// The points, by increasing utilization.
    pub shape: Vec<UtilizationShapePoint>,
}

/// The strategy of `NodeResourcesFit`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScoringStrategy {
    /// The kind.
    #[serde(rename = "type")]
    pub type_: ScoringStrategyType,
    /// The resources that count.
    pub resources: Vec<ResourceSpec>,
    /// The shape for `RequestedToCapacityRatio`.
    pub requested_to_capacity_ratio: Option<RatioParameters>,
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        Self {
            type_: ScoringStrategyType::LeastAllocated,
            resources: default_resources(),
            requested_to_capacity_ratio: None,
        }
    }
}

/// Arguments of `NodeResourcesFit`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeResourcesFitArgs {
    /// Extended resources that are not checked.
    pub ignored_resources: Vec<String>,
    /// Domains of extended resources that are not checked.
    pub ignored_resource_groups: Vec<String>,
    /// The scoring strategy.
    pub scoring_strategy: ScoringStrategy,
}

/// Arguments of `NodeResourcesBalancedAllocation`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct BalancedAllocationArgs {
    /// The resources to balance.
    pub resources: Vec<ResourceSpec>,
}

impl Default for BalancedAllocationArgs {
    fn default() -> Self {
        Self { resources: default_resources() }
    }
}

/// Which constraints pods without their own have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum SpreadDefaulting {
    /// Those of the arguments.
    List,
    /// Soft ones over hosts and zones.
    #[default]
    System,
}

/// Arguments of `PodTopologySpread`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodTopologySpreadArgs {
    /// Constraints of pods without their own.
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// Whether those of the arguments or the system's are used.
    pub defaulting_type: SpreadDefaulting,
}

impl PodTopologySpreadArgs {
    /// Returns the constraints of pods without their own.
    pub fn constraints(&self) -> Vec<TopologySpreadConstraint> {
        let system = |key: &str, max_skew| TopologySpreadConstraint {
            topology_key: key.into(),
            when_unsatisfiable: "ScheduleAnyway".into(),
            max_skew,
            ..Default::default()
        };
        match self.defaulting_type {
            SpreadDefaulting::List => self.default_constraints.clone(),
            SpreadDefaulting::System => {
                vec![system("kubernetes.io/hostname", 3), system("topology.kubernetes.io/zone", 5)]
            }
        }
    }
}

/// Arguments of `InterPodAffinity`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InterPodAffinityArgs {
    /// Weight of required terms of existing pods in scores.
    pub hard_pod_affinity_weight: i32,
    /// Whether preferred terms of existing pods count only for pods with preferred terms.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// Arguments of `DefaultPreemption`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DefaultPreemptionArgs {
    /// Share of the nodes that are tried, at least.
    pub min_candidate_nodes_percentage: i32,
    /// Number of nodes that are tried, at least.
    pub min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// Arguments of `VolumeBinding`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeBindingArgs {
    /// Time to wait for volumes to be bound.
    pub bind_timeout_seconds: i64,
    /// The shape of capacity scoring, a feature that is off by default.
    pub shape: Vec<UtilizationShapePoint>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self { bind_timeout_seconds: 600, shape: Vec::new() }
    }
}

/// Arguments of `DynamicResources`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DynamicResourcesArgs {
    /// Time for the search of devices on one node; zero is unlimited.
    pub filter_timeout: String,
    /// Time to wait for devices to become ready.
    pub binding_timeout: String,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self { filter_timeout: "10s".into(), binding_timeout: "10m0s".into() }
    }
}
