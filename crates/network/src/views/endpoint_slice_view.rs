//! The fields of an EndpointSlice that proxy and DNS read.

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use super::{compact_metadata, impl_view_resource};

/// The label that names a slice's Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// An EndpointSlice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointSliceView {
    #[serde(deserialize_with = "compact_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub address_type: String,
    #[serde(default)]
    pub endpoints: Option<Vec<EndpointView>>,
    #[serde(default)]
    pub ports: Option<Vec<EndpointPortView>>,
}

impl_view_resource!(
    EndpointSliceView,
    "EndpointSlice",
    "discovery.k8s.io",
    "v1",
    "endpointslices",
    NamespaceResourceScope
);

/// An endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointView {
    pub addresses: Vec<Box<str>>,
    pub conditions: EndpointConditionsView,
    pub hostname: Option<Box<str>>,
    pub node_name: Option<Box<str>>,
    pub hints: Option<EndpointHintsView>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointConditionsView {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointHintsView {
    pub for_zones: Vec<HintView>,
    pub for_nodes: Vec<HintView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HintView {
    pub name: String,
}

/// A port of all endpoints of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointPortView {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub port: Option<u16>,
}

impl EndpointSliceView {
    /// The key of the Service that the slice belongs to.
    pub fn service_key(&self) -> Option<String> {
        let name = self.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
        Some(format!("{}/{name}", self.metadata.namespace.as_deref().unwrap_or_default()))
    }

    /// Whether the addresses are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address_type == "IPv4"
    }
}

impl EndpointView {
    /// Whether the endpoint accepts connections.
    pub fn is_ready(&self) -> bool {
        self.conditions.ready.unwrap_or(true)
    }
}
