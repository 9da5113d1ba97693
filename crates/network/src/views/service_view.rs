//! The fields of a Service that proxy and DNS read.

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use super::{compact_metadata, impl_view_resource};

/// The label of Services that another proxy implements.
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// The label of Services without an address of the cluster, made by custom implementations.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// A Service.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ServiceView {
    #[serde(deserialize_with = "compact_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: ServiceSpecView,
    #[serde(default)]
    pub status: ServiceStatusView,
}

impl_view_resource!(ServiceView, "Service", "", "v1", "services", NamespaceResourceScope);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServiceSpecView {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    pub external_name: Option<String>,
    pub external_traffic_policy: Option<String>,
    pub internal_traffic_policy: Option<String>,
    pub health_check_node_port: Option<u16>,
    pub load_balancer_source_ranges: Vec<String>,
    pub publish_not_ready_addresses: bool,
    pub session_affinity: Option<String>,
    pub session_affinity_config: Option<SessionAffinityConfigView>,
    pub ports: Vec<ServicePortView>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServicePortView {
    pub name: String,
    pub protocol: Option<String>,
    pub port: u16,
    pub node_port: Option<u16>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SessionAffinityConfigView {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClientIpView {
    pub timeout_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServiceStatusView {
    pub load_balancer: LoadBalancerStatusView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LoadBalancerStatusView {
    pub ingress: Vec<LoadBalancerIngressView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LoadBalancerIngressView {
    pub ip: Option<String>,
    pub ip_mode: Option<String>,
}

impl ServiceView {
    /// Whether the Service is an alias of an external name.
    pub fn is_external_name(&self) -> bool {
        self.spec.kind.as_deref() == Some("ExternalName")
    }

    /// Whether the Service has no address of its own.
    pub fn is_headless(&self) -> bool {
        self.spec.cluster_ip.as_deref() == Some("None")
    }

    /// Whether the service proxy has anything to do for it.
    pub fn is_proxied(&self) -> bool {
        let has_label = |name| self.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(name));
        let has_address = self.spec.cluster_ip.as_deref().is_some_and(|ip| !ip.is_empty() && ip != "None");
        has_address && !self.is_external_name() && !has_label(PROXY_NAME_LABEL) && !has_label(HEADLESS_LABEL)
    }
}
