//! The scheduler cache: nodes, their resources, and assigned or assumed pods.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::resources::ResourceAmounts;

/// A pod with the values that the scheduling cycle reads.
#[derive(Clone, Debug)]
pub(crate) struct PodInfo {
    pub(crate) pod: Arc<Pod>,
    pub(crate) requests: ResourceAmounts,
    pub(crate) requests_for_score: ResourceAmounts,
    pub(crate) ports: Vec<HostPort>,
}

/// A host port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) ip: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
}

impl PodInfo {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        let (requests, requests_for_score) =
            (ResourceAmounts::from_pod_requests(&pod), ResourceAmounts::from_pod_requests_for_score(&pod));
        let ports = host_ports(&pod);
        Self { pod, requests, requests_for_score, ports }
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars =
        spec.init_containers.iter().flatten().filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let requested = ports.filter(|port| port.host_port.is_some_and(|port| port > 0));
    requested
        .map(|port| HostPort {
            ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".into()),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port: port.host_port.unwrap_or(0),
        })
        .collect()
}

/// A node and its pods. Invariant: the requested amounts are the sums over `pods`.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeInfo {
    /// Absent while pods of an unobserved node are known.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) allocatable: ResourceAmounts,
    pub(crate) requested: ResourceAmounts,
    pub(crate) requested_for_score: ResourceAmounts,
    /// By uid.
    pub(crate) pods: HashMap<String, PodInfo>,
}

impl NodeInfo {
    pub(crate) fn set_node(&mut self, node: Arc<Node>) {
        self.allocatable =
            ResourceAmounts::from_list(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        self.node = Some(node);
    }

    pub(crate) fn add_pod(&mut self, uid: String, pod: PodInfo) {
        self.requested.add(&pod.requests);
        self.requested_for_score.add(&pod.requests_for_score);
        self.pods.insert(uid, pod);
    }

    fn remove_pod(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.requested.subtract(&pod.requests);
            self.requested_for_score.subtract(&pod.requests_for_score);
        }
    }
}

/// All nodes. Invariant: a pod is on at most one node, the one in `assigned`.
#[derive(Default)]
pub(crate) struct SchedulerCache {
    nodes: BTreeMap<String, NodeInfo>,
    /// Node name by pod uid.
    assigned: HashMap<String, String>,
}

impl SchedulerCache {
    /// Returns the existing nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &NodeInfo)> {
        self.nodes.iter().filter(|(_, info)| info.node.is_some()).map(|(name, info)| (name.as_str(), info))
    }

    pub(crate) fn set_node(&mut self, name: &str, node: Arc<Node>) {
        self.nodes.entry(name.into()).or_default().set_node(node);
    }

    /// Removes a node; its pods may outlive the Node object.
    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(info) = self.nodes.get_mut(name) {
            info.node = None;
        }
        self.remove_if_empty(name);
    }

    /// Adds a pod to a node, whether bound or assumed.
    pub(crate) fn add_pod(&mut self, uid: &str, node: &str, pod: PodInfo) {
        self.remove_pod(uid);
        self.nodes.entry(node.into()).or_default().add_pod(uid.into(), pod);
        self.assigned.insert(uid.into(), node.into());
    }

    /// Removes a pod that terminated or could not be bound; returns whether it was present.
    pub(crate) fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(node) = self.assigned.remove(uid) else { return false };
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove_pod(uid);
        }
        self.remove_if_empty(&node);
        true
    }

    pub(crate) fn contains_pod(&self, uid: &str) -> bool {
        self.assigned.contains_key(uid)
    }

    fn remove_if_empty(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|info| info.node.is_none() && info.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str) -> PodInfo {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        PodInfo::new(Arc::new(serde_json::from_value(json!({"spec": spec})).unwrap()))
    }

    fn used(cache: &SchedulerCache, name: &str) -> i64 {
        cache.nodes().find(|(node, _)| *node == name).map_or(-1, |(_, info)| info.requested.get("cpu"))
    }

    #[test]
    fn pods_are_moved_and_removed() {
        let mut cache = SchedulerCache::default();
        cache.set_node("a", Arc::default());
        cache.set_node("b", Arc::default());
        cache.add_pod("1", "a", pod("1"));
        cache.add_pod("2", "a", pod("2"));
        assert_eq!((used(&cache, "a"), used(&cache, "b")), (3000, 0));
        cache.add_pod("1", "b", pod("1"));
        assert_eq!((used(&cache, "a"), used(&cache, "b")), (2000, 1000));
        assert!(cache.remove_pod("2") && !cache.remove_pod("2"));
        assert_eq!(used(&cache, "a"), 0);
    }

    #[test]
    fn pods_may_be_observed_before_and_after_their_node() {
        let mut cache = SchedulerCache::default();
        cache.add_pod("1", "a", pod("1"));
        assert_eq!(cache.nodes().count(), 0);
        cache.set_node("a", Arc::default());
        assert_eq!(used(&cache, "a"), 1000);
        cache.remove_node("a");
        assert_eq!(used(&cache, "a"), -1);
        cache.set_node("a", Arc::default());
        assert_eq!(used(&cache, "a"), 1000);
        cache.remove_node("a");
        cache.remove_pod("1");
        assert!(cache.nodes.is_empty() && cache.assigned.is_empty());
    }
}
