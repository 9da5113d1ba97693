//! The condition `Ready` of nodes.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Returns the condition `Ready`.
pub(crate) fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether the node is ready.
pub(crate) fn is_node_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|ready| ready.status == "True")
}
