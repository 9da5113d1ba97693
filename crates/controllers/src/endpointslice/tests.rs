//! Plans of EndpointSlices from services, pods and nodes.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};

use super::{
    hints::{TrafficDistribution, remove_hints},
    reconcile::{SlicePlan, SliceReconciler},
    slice,
    topology::TopologyCache,
};
use crate::{object_key::ObjectKey, pod_view::PodView, service_endpoints::endpoint_set::slice_endpoints};

fn service(spec: Value) -> Service {
    let mut service = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "svc", "labels": {"app": "web"}},
        "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]}});
    json_patch::merge(&mut service["spec"], &spec);
    serde_json::from_value(service).unwrap()
}

/// A ready pod on node `node-<zone>`.
fn pod(number: usize, zone: &str) -> Arc<PodView> {
    let pod = json!({"metadata": {"name": format!("p{number:03}"), "namespace": "ns", "uid": format!("u{number}")},
        "spec": {"nodeName": format!("node-{zone}"), "containers": []},
        "status": {"podIP": format!("10.0.{}.{}", number / 250, number % 250),
            "podIPs": [{"ip": format!("10.0.{}.{}", number / 250, number % 250)}],
            "conditions": [{"type": "Ready", "status": "True"}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn node(name: &str) -> Option<Arc<Node>> {
    let zone = name.strip_prefix("node-")?;
    let node = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    Some(Arc::new(serde_json::from_value(node).unwrap()))
}

fn plan(service: &Service, pods: &[Arc<PodView>], existing: &[Arc<EndpointSlice>], max_endpoints: usize) -> SlicePlan {
    SliceReconciler { service, pods, node: &node, max_endpoints }.plan("IPv4", existing)
}

/// Names and numbers the created slices as the server would.
fn stored(plan: SlicePlan) -> Vec<Arc<EndpointSlice>> {
    let all = plan.unchanged.into_iter().chain(plan.update.into_iter().chain(plan.create).map(Arc::new));
    let name = |(index, slice): (usize, Arc<EndpointSlice>)| {
        let mut slice = Arc::unwrap_or_clone(slice);
        slice.metadata.name.get_or_insert(format!("web-{index}"));
        Arc::new(slice)
    };
    all.enumerate().map(name).collect()
}

fn shape(plan: &SlicePlan) -> (Vec<usize>, Vec<usize>, usize, usize) {
    let sizes = |slices: &[EndpointSlice]| slices.iter().map(|slice| slice_endpoints(slice).len()).collect();
    (sizes(&plan.create), sizes(&plan.update), plan.delete.len(), plan.unchanged.len())
}

#[test]
fn endpoints_fill_slices_and_later_changes_touch_few() {
    let service = service(json!({}));
    let mut pods: Vec<_> = (0..25).map(|number| pod(number, "a")).collect();
    let first = plan(&service, &pods, &[], 10);
    assert_eq!(shape(&first), (vec![10, 10, 5], vec![], 0, 0));
    assert_eq!(first.create[0].metadata.generate_name.as_deref(), Some("web-"));
    let slices = stored(first);
    assert_eq!(shape(&plan(&service, &pods, &slices, 10)), (vec![], vec![], 0, 3));
    pods.push(pod(25, "a"));
    assert_eq!(shape(&plan(&service, &pods, &slices, 10)), (vec![], vec![6], 0, 2));
    pods.remove(0);
    assert_eq!(shape(&plan(&service, &pods, &slices, 10)), (vec![], vec![10], 0, 2));
    let first: Vec<_> = slice_endpoints(&slices[0]).iter().flat_map(|endpoint| &endpoint.addresses).collect();
    pods.retain(|pod| !first.contains(&pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap()));
    assert_eq!(shape(&plan(&service, &pods, &slices, 10)), (vec![], vec![6], 1, 1));
}

#[test]
fn service_without_endpoints_keeps_one_placeholder() {
    let service = service(json!({}));
    let empty = plan(&service, &[], &[], 100);
    assert_eq!(shape(&empty), (vec![0], vec![], 0, 0));
    let placeholder = stored(empty);
    assert_eq!(shape(&plan(&service, &[], &placeholder, 100)), (vec![], vec![], 0, 1));
    let mut filled = plan(&service, &[pod(1, "a")], &placeholder, 100);
    assert_eq!(shape(&filled), (vec![1], vec![], 1, 0));
    filled.recycle_slices(&service);
    assert_eq!(shape(&filled), (vec![], vec![1], 0, 0));
    assert_eq!(filled.update[0].metadata.name.as_deref(), Some("web-0"));
}

#[test]
fn slices_of_a_former_service_are_deleted_and_not_recycled() {
    let mut old = service(json!({}));
    old.metadata.uid = Some("former".into());
    let slices = stored(plan(&old, &[pod(1, "a")], &[], 100));
    let mut plan = plan(&service(json!({})), &[pod(1, "a")], &slices, 100);
    plan.recycle_slices(&service(json!({})));
    assert_eq!(shape(&plan), (vec![1], vec![], 1, 0));
}

#[test]
fn label_and_condition_changes_update_in_place() {
    let mut service = service(json!({}));
    let slices = stored(plan(&service, &[pod(1, "a"), pod(2, "a")], &[], 100));
    service.metadata.labels = Some([("tier".to_owned(), "x".to_owned())].into());
    let relabelled = plan(&service, &[pod(1, "a"), pod(2, "a")], &slices, 100);
    assert_eq!(shape(&relabelled), (vec![], vec![2], 0, 0));
    assert_eq!(
        json!(relabelled.update[0].metadata.labels),
        json!({"tier": "x", "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    let mut terminating = PodView::clone(&pod(2, "a"));
    terminating.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let slices = stored(relabelled);
    let changed = plan(&service, &[pod(1, "a"), Arc::new(terminating)], &slices, 100);
    assert_eq!(
        json!(slice_endpoints(&changed.update[0])[1].conditions),
        json!({"ready": false, "serving": true, "terminating": true})
    );
}

#[test]
fn pod_of_an_unknown_node_is_skipped_unless_not_ready_pods_are_published() {
    let mut lost = PodView::clone(&pod(1, "a"));
    lost.spec.as_mut().unwrap().node_name = Some("gone".into());
    let lost = [Arc::new(lost)];
    let skipped = plan(&service(json!({})), &lost, &[], 100);
    assert_eq!(skipped.skipped, ["skipping Pod p001 for Service ns/web: Node gone Not Found"]);
    assert_eq!(shape(&skipped).0, [0]);
    let published = plan(&service(json!({"publishNotReadyAddresses": true})), &lost, &[], 100);
    assert_eq!(shape(&published).0, [1]);
}

#[test]
fn pods_with_other_named_ports_get_their_own_slice() {
    let service = service(json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}]}));
    let with_port = |number: usize, port: i32| {
        let mut pod = PodView::clone(&pod(number, "a"));
        let container = json!({"name": "c", "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]});
        pod.spec.as_mut().unwrap().containers = Box::new([serde_json::from_value(container).unwrap()]);
        Arc::new(pod)
    };
    let plan = plan(&service, &[with_port(1, 8080), with_port(2, 9090), with_port(3, 8080)], &[], 100);
    let slices: Vec<_> =
        plan.create.iter().map(|slice| (slice.ports.as_ref().unwrap()[0].port, slice_endpoints(slice).len())).collect();
    assert_eq!(slices, [(Some(8080), 2), (Some(9090), 1)]);
}

#[test]
fn address_types_follow_the_families_of_the_service() {
    assert_eq!(slice::address_types(&service(json!({"ipFamilies": ["IPv6", "IPv4"]}))), ["IPv4", "IPv6"]);
    assert_eq!(slice::address_types(&service(json!({"ipFamilies": null, "clusterIP": "fd00::1"}))), ["IPv6"]);
    assert_eq!(slice::address_types(&service(json!({"ipFamilies": null, "clusterIP": "None"}))), ["IPv4", "IPv6"]);
}

#[test]
fn traffic_distribution_hints_the_own_zone_or_node() {
    let hints = |distribution: &str| {
        let service = service(json!({"trafficDistribution": distribution}));
        let mut plan = plan(&service, &[pod(1, "a")], &[], 100);
        match TrafficDistribution::of_service(&service) {
            Some(distribution) => distribution.add_hints(&mut plan),
            None => remove_hints(&mut plan),
        }
        json!(slice_endpoints(&plan.create[0])[0].hints)
    };
    assert_eq!(hints("PreferClose"), json!({"forZones": [{"name": "a"}]}));
    assert_eq!(hints("PreferSameZone"), json!({"forZones": [{"name": "a"}]}));
    assert_eq!(hints("PreferSameNode"), json!({"forZones": [{"name": "a"}], "forNodes": [{"name": "node-a"}]}));
    assert_eq!(hints("Anything"), json!(null));
}

#[test]
fn unchanged_slices_are_updated_when_the_distribution_changes() {
    let service = service(json!({}));
    let slices = stored(plan(&service, &[pod(1, "a")], &[], 100));
    let mut hinted = plan(&service, &[pod(1, "a")], &slices, 100);
    TrafficDistribution::SameZone.add_hints(&mut hinted);
    assert_eq!(shape(&hinted), (vec![], vec![1], 0, 0));
    let slices = stored(hinted);
    let mut again = plan(&service, &[pod(1, "a")], &slices, 100);
    TrafficDistribution::SameZone.add_hints(&mut again);
    assert_eq!(shape(&again), (vec![], vec![], 0, 1));
    remove_hints(&mut again);
    assert_eq!(shape(&again), (vec![], vec![1], 0, 0));
    assert!(slice_endpoints(&again.update[0])[0].hints.is_none());
}

#[test]
fn topology_hints_spread_endpoints_by_cpu() {
    let (service, key, cache) = (service(json!({})), ObjectKey::new("ns", "web"), TopologyCache::default());
    let pods: Vec<_> = (0..6).map(|number| pod(number, if number < 5 { "a" } else { "b" })).collect();
    let mut refused = plan(&service, &pods, &[], 100);
    let event = cache.add_hints(&key, "IPv4", &mut refused).unwrap();
    assert_eq!(
        event.message,
        "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes, addressType: IPv4"
    );
    cache.set_nodes(&[node("node-a").unwrap(), node("node-b").unwrap()]);
    let mut hinted = plan(&service, &pods, &[], 100);
    let event = cache.add_hints(&key, "IPv4", &mut hinted).unwrap();
    assert_eq!(
        (event.enabled, event.message.as_str()),
        (true, "Topology Aware Hints has been enabled, addressType: IPv4")
    );
    let zones: Vec<_> = slice_endpoints(&hinted.create[0])
        .iter()
        .map(|e| e.hints.clone().unwrap().for_zones.unwrap()[0].name.clone())
        .collect();
    assert_eq!(zones.iter().filter(|zone| *zone == "a").count(), 3);
    assert!(cache.has_hints(&key));
    let slices = stored(hinted);
    let mut again = plan(&service, &pods, &slices, 100);
    assert_eq!(cache.add_hints(&key, "IPv4", &mut again), None);
    assert_eq!(shape(&again), (vec![], vec![], 0, 1));
    let mut few = plan(&service, &pods[..1], &slices, 100);
    let event = cache.add_hints(&key, "IPv4", &mut few).unwrap();
    assert_eq!(event.message, "Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4");
    assert!(!cache.has_hints(&key));
}

#[test]
fn loss_of_a_zone_requeues_overloaded_services() {
    let (service, key, cache) = (service(json!({})), ObjectKey::new("ns", "web"), TopologyCache::default());
    let nodes = [node("node-a").unwrap(), node("node-b").unwrap()];
    assert!(cache.set_nodes(&nodes).is_empty());
    let mut hinted = plan(&service, &[pod(1, "a"), pod(2, "b")], &[], 100);
    cache.add_hints(&key, "IPv4", &mut hinted);
    assert!(cache.set_nodes(&nodes).is_empty());
    assert_eq!(cache.set_nodes(&nodes[..1]), [key]);
}
