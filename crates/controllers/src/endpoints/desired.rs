//! Calculates the Endpoints object of a service.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Service, ServicePort,
};

use crate::{
    pod_availability::is_pod_ready,
    pod_view::PodView,
    service_endpoints::{
        HEADLESS_LABEL,
        endpoint_set::without_version,
        membership::{endpoint_hostname, has_cluster_ip, pod_ips, publishes_not_ready, should_pod_be_in_endpoints},
        parse_ip_sloppy,
        ports::find_port,
        subsets::repack_subsets,
        trigger_time::annotate_trigger_time,
    },
};

/// Value of the label `endpoints.kubernetes.io/managed-by`.
pub(super) const MANAGER: &str = "endpoint-controller";
const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY_ANNOTATION: &str = "endpoints.kubernetes.io/over-capacity";
/// Greatest number of addresses of an Endpoints object.
const MAX_CAPACITY: usize = 1000;

/// Returns the object to write; `None` if `current` is up to date.
pub(super) fn desired_endpoints(
    service: &Service,
    pods: &[Arc<PodView>],
    current: Option<&Endpoints>,
    trigger_time: Option<Timestamp>,
) -> Option<Endpoints> {
    let subsets = service_subsets(service, pods);
    if current.is_some_and(|current| is_up_to_date(current, &subsets, service)) {
        return None;
    }
    let mut endpoints = current.cloned().unwrap_or_default();
    endpoints.metadata.name = service.metadata.name.clone();
    endpoints.metadata.namespace = service.metadata.namespace.clone();
    endpoints.metadata.labels = Some(endpoints_labels(service));
    let annotations = endpoints.metadata.annotations.get_or_insert_default();
    annotate_trigger_time(annotations, trigger_time);
    let mut subsets = subsets;
    match truncate_subsets(&mut subsets) {
        true => annotations.insert(OVER_CAPACITY_ANNOTATION.into(), "truncated".into()),
        false => annotations.remove(OVER_CAPACITY_ANNOTATION),
    };
    endpoints.subsets = (!subsets.is_empty()).then_some(subsets);
    Some(endpoints)
}

fn service_subsets(service: &Service, pods: &[Arc<PodView>]) -> Vec<EndpointSubset> {
    let publish_not_ready = publishes_not_ready(service);
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let mut subsets = Vec::new();
    for pod in pods.iter().filter(|pod| should_pod_be_in_endpoints(pod, publish_not_ready)) {
        let Some(address) = endpoint_address(service, pod) else { continue };
        let is_ready = publish_not_ready || is_pod_ready(pod);
        let mut add = |ports: Option<Vec<EndpointPort>>| {
            let addresses = Some(vec![address.clone()]);
            subsets.push(match is_ready {
                true => EndpointSubset { addresses, ports, ..Default::default() },
                false => EndpointSubset { not_ready_addresses: addresses, ports, ..Default::default() },
            });
        };
        if ports.is_empty() && is_headless(service) {
            add(None);
        }
        ports.iter().filter_map(|port| endpoint_port(pod, port)).for_each(|port| add(Some(vec![port])));
    }
    repack_subsets(&subsets)
}

fn endpoint_port(pod: &PodView, port: &ServicePort) -> Option<EndpointPort> {
    Some(EndpointPort {
        port: find_port(pod, port)?,
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    })
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// Returns the pod's address of the service's first family.
fn endpoint_address(service: &Service, pod: &PodView) -> Option<EndpointAddress> {
    let wants_ipv6 = wants_ipv6(service, pod);
    let mut ips = pod_ips(pod).into_iter().filter_map(parse_ip_sloppy);
    let ip = ips.find(|ip| ip.is_ipv6() == wants_ipv6)?;
    Some(EndpointAddress {
        ip: ip.to_string(),
        hostname: endpoint_hostname(pod, service),
        node_name: Some(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..Default::default()
        }),
    })
}

fn wants_ipv6(service: &Service, pod: &PodView) -> bool {
    let spec = service.spec.as_ref();
    if let Some(family) = spec.and_then(|spec| spec.ip_families.as_ref()?.first()) {
        return family == "IPv6";
    }
    let pod_ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).filter(|_| has_cluster_ip(service));
    cluster_ip.or(pod_ip).and_then(parse_ip_sloppy).is_some_and(|ip| ip.is_ipv6())
}

fn endpoints_labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    match has_cluster_ip(service) {
        true => labels.remove(HEADLESS_LABEL),
        false => labels.insert(HEADLESS_LABEL.into(), String::new()),
    };
    labels.insert(MANAGED_BY_LABEL.into(), MANAGER.into());
    labels
}

fn is_up_to_date(current: &Endpoints, subsets: &[EndpointSubset], service: &Service) -> bool {
    let present = current.subsets.as_deref().unwrap_or_default();
    let annotations = current.metadata.annotations.as_ref();
    (is_same_subsets(present, subsets) || is_same_subsets(&repack_subsets(present), subsets))
        && is_labelled(current, service)
        && address_count(present) <= MAX_CAPACITY
        && annotations.is_none_or(|annotations| !annotations.contains_key(OVER_CAPACITY_ANNOTATION))
}

/// Compares subsets; empty and absent lists are equal, and resource versions of targets do not count.
fn is_same_subsets(one: &[EndpointSubset], other: &[EndpointSubset]) -> bool {
    let normalize_addresses = |addresses: &Option<Vec<EndpointAddress>>| -> Vec<EndpointAddress> {
        let addresses = addresses.iter().flatten();
        addresses
            .map(|address| EndpointAddress { target_ref: without_version(&address.target_ref), ..address.clone() })
            .collect()
    };
    let normalize = |subset: &EndpointSubset| {
        let ports = subset.ports.clone().unwrap_or_default();
        (normalize_addresses(&subset.addresses), normalize_addresses(&subset.not_ready_addresses), ports)
    };
    one.iter().map(normalize).eq(other.iter().map(normalize))
}

/// Whether the labels are those of the service, besides the headless label.
fn is_labelled(current: &Endpoints, service: &Service) -> bool {
    let labels = current.metadata.labels.clone().unwrap_or_default();
    let own = |key: &str| key == HEADLESS_LABEL || key == MANAGED_BY_LABEL;
    let others: BTreeMap<_, _> = labels.iter().filter(|(key, _)| !own(key)).collect();
    let wanted: BTreeMap<_, _> = service.metadata.labels.iter().flatten().collect();
    labels.get(MANAGED_BY_LABEL).is_some_and(|manager| manager == MANAGER) && others == wanted
}

fn address_count(subsets: &[EndpointSubset]) -> usize {
    subsets.iter().map(|subset| list_len(&subset.addresses) + list_len(&subset.not_ready_addresses)).sum()
}

fn list_len(addresses: &Option<Vec<EndpointAddress>>) -> usize {
    addresses.as_ref().map_or(0, Vec::len)
}

/// Truncates subsets to [`MAX_CAPACITY`] in proportion to their sizes, not ready addresses first; returns whether any
/// address was removed.
fn truncate_subsets(subsets: &mut [EndpointSubset]) -> bool {
    if address_count(subsets) <= MAX_CAPACITY {
        return false;
    }
    let ready: usize = subsets.iter().map(|subset| list_len(&subset.addresses)).sum();
    let truncate_ready = ready > MAX_CAPACITY;
    let (capacity, total) = match truncate_ready {
        true => (MAX_CAPACITY, ready),
        false => (MAX_CAPACITY - ready, address_count(subsets) - ready),
    };
    let mut left = capacity;
    for subset in subsets {
        let addresses = if truncate_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = list_len(addresses) as f64 / total as f64 * capacity as f64;
        let kept = (share.ceil() as usize).min(left);
        addresses.iter_mut().for_each(|addresses| addresses.truncate(kept));
        left -= list_len(addresses);
        if truncate_ready {
            subset.not_ready_addresses = None;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let mut service = json!({"metadata": {"name": "web", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]}});
        json_patch::merge(&mut service["spec"], &spec);
        serde_json::from_value(service).unwrap()
    }

    fn pod(number: usize, ready: bool) -> Arc<PodView> {
        let ip = format!("10.0.{}.{}", number / 250, number % 250);
        let status = if ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "ns", "uid": format!("u{number}")},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": status}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn ready_and_not_ready_pods_are_listed_and_nothing_is_written_twice() {
        let (service, pods) = (service(json!({})), [pod(1, true), pod(2, false)]);
        let written = desired_endpoints(&service, &pods, None, None).unwrap();
        let target = |number: usize| json!({"kind": "Pod", "namespace": "ns", "name": format!("p{number}"), "uid": format!("u{number}")});
        assert_eq!(
            json!(written.subsets),
            json!([{"addresses": [{"ip": "10.0.0.1", "nodeName": "n", "targetRef": target(1)}],
                "notReadyAddresses": [{"ip": "10.0.0.2", "nodeName": "n", "targetRef": target(2)}],
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}])
        );
        assert_eq!(
            json!(written.metadata.labels),
            json!({"app": "web", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
        );
        assert!(desired_endpoints(&service, &pods, Some(&written), None).is_none());
        assert!(desired_endpoints(&service, &pods[..1], Some(&written), None).is_some());
    }

    #[test]
    fn headless_service_needs_no_ports_and_is_labelled() {
        let service = service(json!({"clusterIP": "None", "ports": null}));
        let written = desired_endpoints(&service, &[pod(1, true)], None, None).unwrap();
        assert_eq!(written.subsets.as_ref().unwrap()[0].ports, None);
        assert!(written.metadata.labels.as_ref().unwrap().contains_key(HEADLESS_LABEL));
        assert!(desired_endpoints(&service, &[pod(1, true)], Some(&written), None).is_none());
    }

    #[test]
    fn not_ready_pods_may_be_published_as_ready() {
        let service = service(json!({"publishNotReadyAddresses": true}));
        let written = desired_endpoints(&service, &[pod(1, false)], None, None).unwrap();
        assert_eq!(list_len(&written.subsets.unwrap()[0].addresses), 1);
    }

    #[test]
    fn addresses_above_the_capacity_are_truncated() {
        let check = |ready: usize, not_ready: usize, expected: (usize, usize)| {
            let pods: Vec<_> = (0..ready + not_ready).map(|number| pod(number, number < ready)).collect();
            let written = desired_endpoints(&service(json!({})), &pods, None, None).unwrap();
            let subset = &written.subsets.as_ref().unwrap()[0];
            assert_eq!((list_len(&subset.addresses), list_len(&subset.not_ready_addresses)), expected);
            written.metadata.annotations.unwrap_or_default().contains_key(OVER_CAPACITY_ANNOTATION)
        };
        assert!(!check(900, 100, (900, 100)));
        assert!(check(900, 200, (900, 100)));
        assert!(check(1100, 200, (1000, 0)));
    }
}
