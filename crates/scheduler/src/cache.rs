//! What the scheduler knows of nodes: how much they have and what runs there, or is assumed to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::resources::Resources;

/// A pod with what the cycle needs of it.
#[derive(Clone, Debug)]
pub(crate) struct PodInfo {
    pub(crate) pod: Arc<Pod>,
    pub(crate) requests: Resources,
    pub(crate) requests_for_score: Resources,
    pub(crate) ports: Vec<HostPort>,
}

/// A port that a container wants on the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) ip: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
}

impl PodInfo {
    pub(crate) fn new(pod: Arc<Pod>) -> Self {
        let (requests, requests_for_score) = (Resources::of_pod(&pod), Resources::of_pod_for_score(&pod));
        let ports = host_ports(&pod);
        Self { pod, requests, requests_for_score, ports }
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars =
        spec.init_containers.iter().flatten().filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let wanted = ports.filter(|port| port.host_port.is_some_and(|port| port > 0));
    wanted
        .map(|port| HostPort {
            ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".into()),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port: port.host_port.unwrap_or(0),
        })
        .collect()
}

/// A node and the pods on it. The sums are those of `pods`.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeInfo {
    /// Absent while pods are known of a node that is not.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) allocatable: Resources,
    pub(crate) requested: Resources,
    pub(crate) requested_for_score: Resources,
    /// By uid.
    pub(crate) pods: HashMap<String, PodInfo>,
}

impl NodeInfo {
    pub(crate) fn set_node(&mut self, node: Arc<Node>) {
        self.allocatable = Resources::from_list(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        self.node = Some(node);
    }

    pub(crate) fn add(&mut self, uid: String, pod: PodInfo) {
        self.requested.add(&pod.requests);
        self.requested_for_score.add(&pod.requests_for_score);
        self.pods.insert(uid, pod);
    }

    fn remove(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.requested.subtract(&pod.requests);
            self.requested_for_score.subtract(&pod.requests_for_score);
        }
    }
}

/// All nodes. A pod is on at most one node, the one that `placed` says.
#[derive(Default)]
pub(crate) struct Cache {
    nodes: BTreeMap<String, NodeInfo>,
    /// The node of each pod, by uid.
    placed: HashMap<String, String>,
}

impl Cache {
    /// The nodes that exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &NodeInfo)> {
        self.nodes.iter().filter(|(_, info)| info.node.is_some()).map(|(name, info)| (name.as_str(), info))
    }

    pub(crate) fn set_node(&mut self, name: &str, node: Arc<Node>) {
        self.nodes.entry(name.into()).or_default().set_node(node);
    }

    /// Pods may outlive their node's object for a while.
    pub(crate) fn remove_node(&mut self, name: &str) {
        if let Some(info) = self.nodes.get_mut(name) {
            info.node = None;
        }
        self.drop_if_empty(name);
    }

    /// Puts a pod on a node, whether the API says so or a binding is under way.
    pub(crate) fn place(&mut self, uid: &str, node: &str, pod: PodInfo) {
        self.remove(uid);
        self.nodes.entry(node.into()).or_default().add(uid.into(), pod);
        self.placed.insert(uid.into(), node.into());
    }

    /// Takes a pod away that ended or could not be bound; says whether it was there.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        let Some(node) = self.placed.remove(uid) else { return false };
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove(uid);
        }
        self.drop_if_empty(&node);
        true
    }

    pub(crate) fn is_placed(&self, uid: &str) -> bool {
        self.placed.contains_key(uid)
    }

    fn drop_if_empty(&mut self, name: &str) {
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

    fn used(cache: &Cache, name: &str) -> i64 {
        cache.nodes().find(|(node, _)| *node == name).map_or(-1, |(_, info)| info.requested.get("cpu"))
    }

    #[test]
    fn pods_move_and_end() {
        let mut cache = Cache::default();
        cache.set_node("a", Arc::default());
        cache.set_node("b", Arc::default());
        cache.place("1", "a", pod("1"));
        cache.place("2", "a", pod("2"));
        assert_eq!((used(&cache, "a"), used(&cache, "b")), (3000, 0));
        cache.place("1", "b", pod("1"));
        assert_eq!((used(&cache, "a"), used(&cache, "b")), (2000, 1000));
        assert!(cache.remove("2") && !cache.remove("2"));
        assert_eq!(used(&cache, "a"), 0);
    }

    #[test]
    fn pods_may_be_seen_before_and_after_their_node() {
        let mut cache = Cache::default();
        cache.place("1", "a", pod("1"));
        assert_eq!(cache.nodes().count(), 0);
        cache.set_node("a", Arc::default());
        assert_eq!(used(&cache, "a"), 1000);
        cache.remove_node("a");
        assert_eq!(used(&cache, "a"), -1);
        cache.set_node("a", Arc::default());
        assert_eq!(used(&cache, "a"), 1000);
        cache.remove_node("a");
        cache.remove("1");
        assert!(cache.nodes.is_empty() && cache.placed.is_empty());
    }
}
