//! Which pods back a service, and which services a pod event affects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use client::{ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use crate::{
    label_index::{index_by_label, index_by_selector, objects_selecting, objects_with_labels},
    object_key::ObjectKey,
    pod_availability::{is_pod_ready, is_pod_terminal},
    pod_view::PodView,
};

/// Adds the indexes that [`pods_of_service`] and [`services_of_event`] read.
pub(crate) fn index_by_membership(services: &SharedInformer<Service>, pods: &SharedInformer<PodView>) {
    index_by_selector(services, service_selector);
    index_by_label(pods);
}

fn service_selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    service.spec.as_ref()?.selector.as_ref()
}

/// Whether the controllers maintain endpoints for the service: it has a selector and is not of type `ExternalName`.
pub(crate) fn has_managed_endpoints(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    has_selector(service) && spec.and_then(|spec| spec.type_.as_deref()) != Some("ExternalName")
}

/// Whether the service has a selector.
pub(crate) fn has_selector(service: &Service) -> bool {
    service_selector(service).is_some_and(|selector| !selector.is_empty())
}

/// Whether the service publishes pods regardless of their readiness.
pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Whether the service has a cluster IP.
pub(crate) fn has_cluster_ip(service: &Service) -> bool {
    let cluster_ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    cluster_ip.is_some_and(|address| !address.is_empty() && address != "None")
}

/// Returns the pods that the service selects.
pub(crate) fn pods_of_service(pods: &SharedInformer<PodView>, service: &Service) -> Vec<Arc<PodView>> {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    service_selector(service).map_or_else(Vec::new, |selector| objects_with_labels(pods, namespace, selector))
}

/// Returns the services whose endpoints a pod event may change.
pub(crate) fn services_of_event(
    services: &SharedInformer<Service>,
    event: &ResourceEvent<PodView>,
) -> impl Iterator<Item = ObjectKey> {
    let namespace = event.object().metadata.namespace.clone().unwrap_or_default();
    let select = |pod: &PodView| -> BTreeSet<ObjectKey> {
        let selecting = objects_selecting(services, &namespace, pod.metadata.labels.as_ref(), service_selector);
        selecting.iter().map(|service| ObjectKey::from_object(service.as_ref())).collect()
    };
    let affected: BTreeSet<ObjectKey> = match event {
        ResourceEvent::Added(pod) | ResourceEvent::Deleted(pod) => select(pod),
        ResourceEvent::Updated { old, new } => match (is_pod_changed(old, new), is_membership_changed(old, new)) {
            (false, false) => BTreeSet::new(),
            (true, false) => select(new),
            (true, true) => &select(old) | &select(new),
            (false, true) => &select(old) ^ &select(new),
        },
    };
    affected.into_iter()
}

/// Whether the pod changed in a way that may select other services.
fn is_membership_changed(old: &PodView, new: &PodView) -> bool {
    let names = |pod: &PodView| pod.spec.as_ref().map(|spec| (spec.hostname.clone(), spec.subdomain.clone()));
    old.metadata.labels != new.metadata.labels || names(old) != names(new)
}

/// Whether the pod changed in a way that may change its endpoints. Every update of a terminating pod counts, as
/// upstream compares deletion timestamps by address.
fn is_pod_changed(old: &PodView, new: &PodView) -> bool {
    let is_terminating = |pod: &PodView| pod.metadata.deletion_timestamp.is_some();
    is_terminating(old) || is_terminating(new) || is_pod_ready(old) != is_pod_ready(new) || pod_ips(old) != pod_ips(new)
}

/// Returns the pod's addresses.
pub(crate) fn pod_ips(pod: &PodView) -> Vec<&str> {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    ips.iter().map(|ip| ip.ip.as_str()).collect()
}

/// Whether a selected pod belongs in endpoints; terminating pods only if `include_terminating`.
pub(crate) fn should_pod_be_in_endpoints(pod: &PodView, include_terminating: bool) -> bool {
    let has_ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).is_some_and(|ip| !ip.is_empty());
    !is_pod_terminal(pod)
        && (has_ip || !pod_ips(pod).is_empty())
        && (include_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// Returns the pod's hostname if it is published by the service: the pod's subdomain names the service.
pub(crate) fn endpoint_hostname(pod: &PodView, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let published = spec.subdomain.as_deref().unwrap_or_default() == service.name_any();
    spec.hostname.clone().filter(|hostname| !hostname.is_empty() && published)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: Value) -> PodView {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
            "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        json_patch::merge(&mut pod, &change);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn changes_that_matter_to_endpoints_are_recognised() {
        let old = pod(json!({}));
        let check = |change: Value, changed, membership| {
            let new = pod(change);
            assert_eq!((is_pod_changed(&old, &new), is_membership_changed(&old, &new)), (changed, membership));
        };
        check(json!({"metadata": {"annotations": {"a": "b"}}}), false, false);
        check(json!({"metadata": {"labels": {"app": "db"}}}), false, true);
        check(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true, false);
        check(json!({"status": {"podIPs": [{"ip": "10.0.0.2"}]}}), true, false);
        check(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), true, false);
        check(json!({"spec": {"containers": [], "hostname": "a"}}), false, true);
    }

    #[test]
    fn terminal_and_unassigned_pods_are_left_out() {
        assert!(should_pod_be_in_endpoints(&pod(json!({})), false));
        assert!(!should_pod_be_in_endpoints(&pod(json!({"status": {"phase": "Succeeded"}})), true));
        assert!(!should_pod_be_in_endpoints(&pod(json!({"status": {"podIPs": null}})), true));
        let terminating = pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert!(should_pod_be_in_endpoints(&terminating, true) && !should_pod_be_in_endpoints(&terminating, false));
    }

    #[test]
    fn hostname_needs_the_subdomain_of_the_service() {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        let named = |subdomain: &str| pod(json!({"spec": {"containers": [], "hostname": "a", "subdomain": subdomain}}));
        assert_eq!(endpoint_hostname(&named("web"), &service).as_deref(), Some("a"));
        assert_eq!(endpoint_hostname(&named("other"), &service), None);
    }
}
