//! Pods by the node that they are assigned to.

use std::sync::Arc;

use client::SharedInformer;

use crate::pod_view::PodView;

/// Index of pods by node name.
const PODS_BY_NODE: &str = "node";

/// Adds the index that [`pods_on_node`] reads.
pub(crate) fn index_pods_by_node(pods: &SharedInformer<PodView>) {
    pods.add_index(PODS_BY_NODE, |pod| assigned_node(pod).map(str::to_owned).into_iter().collect());
}

/// Returns the pods that are assigned to a node.
pub(crate) fn pods_on_node(pods: &SharedInformer<PodView>, node: &str) -> Vec<Arc<PodView>> {
    pods.by_index(PODS_BY_NODE, node)
}

/// Returns the name of the pod's node; `None` if it is not assigned.
pub(crate) fn assigned_node(pod: &PodView) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}
