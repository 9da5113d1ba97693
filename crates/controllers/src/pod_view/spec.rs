//! The view of a pod's specification.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        EphemeralVolumeSource, NodeAffinity, PersistentVolumeClaimVolumeSource, PodResourceClaim, PodSchedulingGroup,
        Toleration,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use serde::{Deserialize, Deserializer};

use super::known_text::{self, KnownText};

/// The part of a pod's specification that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpecView {
    pub(crate) node_name: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) subdomain: Option<String>,
    #[serde(deserialize_with = "decode_containers")]
    pub(crate) containers: Box<[ContainerView]>,
    pub(crate) init_containers: Option<Vec<ContainerView>>,
    /// Those that refer to claims.
    #[serde(deserialize_with = "decode_volumes")]
    pub(crate) volumes: Option<Vec<VolumeView>>,
    pub(crate) tolerations: Option<Vec<Toleration>>,
    pub(crate) affinity: Option<Box<AffinityView>>,
    pub(crate) resources: Option<ResourcesView>,
    pub(crate) overhead: Option<BTreeMap<String, Quantity>>,
    pub(crate) resource_claims: Option<Vec<PodResourceClaim>>,
    pub(crate) scheduling_group: Option<Box<PodSchedulingGroup>>,
}

/// The part of a container that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    #[serde(deserialize_with = "known_text::decode_optional")]
    pub(crate) restart_policy: Option<KnownText>,
    pub(crate) ports: Option<Vec<ContainerPortView>>,
    pub(crate) resources: Option<ResourcesView>,
}

/// The part of a container's port that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerPortView {
    pub(crate) container_port: i32,
    pub(crate) name: Option<String>,
    #[serde(deserialize_with = "known_text::decode_optional")]
    pub(crate) protocol: Option<KnownText>,
}

/// The requests of a container or a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ResourcesView {
    pub(crate) requests: Option<BTreeMap<String, Quantity>>,
}

/// The affinity to nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AffinityView {
    pub(crate) node_affinity: Option<NodeAffinity>,
}

/// A volume that refers to a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeView {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    pub(crate) ephemeral: Option<Box<EphemeralVolumeSource>>,
}

fn decode_containers<'de, D: Deserializer<'de>>(decoder: D) -> Result<Box<[ContainerView]>, D::Error> {
    Ok(Option::<Vec<ContainerView>>::deserialize(decoder)?.unwrap_or_default().into())
}

fn decode_volumes<'de, D: Deserializer<'de>>(decoder: D) -> Result<Option<Vec<VolumeView>>, D::Error> {
    let mut volumes = Option::<Vec<VolumeView>>::deserialize(decoder)?.unwrap_or_default();
    volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    volumes.shrink_to_fit();
    Ok((!volumes.is_empty()).then_some(volumes))
}
