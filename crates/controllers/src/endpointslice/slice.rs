//! Builds endpoints from pods and EndpointSlices from services.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{Node, ObjectReference, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use crate::{
    controller_ref::new_controller_ref,
    pod_availability::is_pod_ready,
    pod_view::PodView,
    service_endpoints::{
        HEADLESS_LABEL, SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL,
        endpoint_set::slice_endpoints,
        membership::{endpoint_hostname, has_cluster_ip, pod_ips, publishes_not_ready},
        parse_ip_sloppy, slice_name_prefix,
    },
};

/// Value of the label `endpointslice.kubernetes.io/managed-by`.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Node label with the zone.
pub(super) const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const RESERVED_LABELS: [&str; 3] = [SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL, HEADLESS_LABEL];

/// Returns the address types of a service. A headless service that has no IP families yet gets both.
pub(super) fn address_types(service: &Service) -> Vec<&'static str> {
    let spec = service.spec.as_ref();
    let families = spec.and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let types: Vec<_> = ["IPv4", "IPv6"].into_iter().filter(|type_| families.iter().any(|f| f == type_)).collect();
    if !types.is_empty() {
        return types;
    }
    let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).filter(|_| has_cluster_ip(service));
    match cluster_ip {
        Some(address) if parse_ip_sloppy(address).is_some_and(|ip| ip.is_ipv6()) => vec!["IPv6"],
        Some(_) => vec!["IPv4"],
        None => vec!["IPv4", "IPv6"],
    }
}

/// Builds the endpoint of a pod; it has no addresses if the pod has none of the type.
pub(super) fn pod_to_endpoint(pod: &PodView, node: Option<&Node>, service: &Service, address_type: &str) -> Endpoint {
    let (serving, terminating) = (is_pod_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let ready = publishes_not_ready(service) || (serving && !terminating);
    let zone = node.and_then(|node| node.labels().get(ZONE_LABEL)).filter(|zone| !zone.is_empty());
    let addresses = pod_ips(pod).into_iter().filter_map(parse_ip_sloppy);
    Endpoint {
        addresses: addresses.filter(|ip| ip.is_ipv6() == (address_type == "IPv6")).map(|ip| ip.to_string()).collect(),
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..Default::default()
        }),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()),
        zone: zone.cloned(),
        hostname: endpoint_hostname(pod, service),
        ..Default::default()
    }
}

/// Builds an empty slice of the service.
pub(super) fn new_slice(service: &Service, ports: Vec<EndpointPort>, address_type: &str) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(slice_name_prefix(&service.name_any())),
            namespace: service.namespace(),
            labels: Some(slice_labels(service)),
            owner_references: Some(vec![new_controller_ref(service)]),
            ..Default::default()
        },
        address_type: address_type.into(),
        endpoints: Some(Vec::new()),
        ports: Some(ports),
    }
}

/// Returns the labels of the service's slices: those of the service and the reserved ones.
pub(super) fn slice_labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = unreserved_labels(service.metadata.labels.as_ref());
    if !has_cluster_ip(service) {
        labels.insert(HEADLESS_LABEL.into(), String::new());
    }
    labels.insert(SERVICE_NAME_LABEL.into(), service.name_any());
    labels.insert(SLICE_MANAGED_BY_LABEL.into(), MANAGER.into());
    labels
}

/// Whether the slice has the labels of the service. A change of a reserved label alone is not corrected.
pub(super) fn has_service_labels(slice: &EndpointSlice, service: &Service) -> bool {
    unreserved_labels(slice.metadata.labels.as_ref()) == unreserved_labels(service.metadata.labels.as_ref())
}

fn unreserved_labels(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let labels = labels.into_iter().flatten();
    let labels = labels.filter(|(key, _)| !RESERVED_LABELS.contains(&key.as_str()));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether the service owns the slice.
pub(super) fn is_owned_by(slice: &EndpointSlice, service: &Service) -> bool {
    slice.owner_references().iter().any(|owner| {
        owner.kind == "Service" && owner.api_version == "v1" && Some(&owner.uid) == service.metadata.uid.as_ref()
    })
}

/// Whether a slice is the placeholder of a service without endpoints.
pub(super) fn is_placeholder(slice: &EndpointSlice, placeholder: &EndpointSlice) -> bool {
    slice_endpoints(slice).is_empty()
        && slice.ports.as_deref().unwrap_or_default().is_empty()
        && slice.address_type == placeholder.address_type
        && slice.metadata.namespace == placeholder.metadata.namespace
        && slice.metadata.labels == placeholder.metadata.labels
}
