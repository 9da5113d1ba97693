//! The view of a pod's status.

use k8s_openapi::{
    api::core::v1::{PodExtendedResourceClaimStatus, PodIP, PodResourceClaimStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::Deserialize;

use super::known_text::{self, KnownText};

/// The part of a pod's status that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatusView {
    #[serde(deserialize_with = "known_text::decode_optional")]
    pub(crate) phase: Option<KnownText>,
    #[serde(deserialize_with = "known_text::decode_optional")]
    pub(crate) reason: Option<KnownText>,
    pub(crate) message: Option<Box<str>>,
    pub(crate) start_time: Option<Time>,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Option<Vec<PodIP>>,
    pub(crate) conditions: Option<Vec<PodConditionView>>,
    pub(crate) container_statuses: Option<Vec<ContainerStatusView>>,
    pub(crate) init_container_statuses: Option<Vec<ContainerStatusView>>,
    pub(crate) resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
    pub(crate) extended_resource_claim_status: Option<Box<PodExtendedResourceClaimStatus>>,
}

/// The part of a pod's condition that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodConditionView {
    #[serde(rename = "type", deserialize_with = "known_text::decode")]
    pub(crate) type_: KnownText,
    #[serde(deserialize_with = "known_text::decode")]
    pub(crate) status: KnownText,
    #[serde(deserialize_with = "known_text::decode_optional")]
    pub(crate) reason: Option<KnownText>,
    pub(crate) message: Option<Box<str>>,
    pub(crate) last_transition_time: Option<Time>,
}

/// The part of a container's status that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatusView {
    pub(crate) name: String,
    pub(crate) restart_count: i32,
    state: Option<ContainerStateView>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct ContainerStateView {
    terminated: Option<ContainerTermination>,
}

/// The end of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerTermination {
    pub(crate) exit_code: i32,
    pub(crate) finished_at: Option<Time>,
}

impl ContainerStatusView {
    /// The end of the container, if it has ended.
    pub(crate) fn termination(&self) -> Option<&ContainerTermination> {
        self.state.as_ref()?.terminated.as_ref()
    }
}
