//! Whether a node is Ready, for people.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// The condition `Ready` of a node.
pub fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether a node is Ready, and why not.
pub fn node_readiness(node: Option<&Node>) -> (bool, String) {
    match (node, node.and_then(ready_condition)) {
        (None, _) => (false, "the node has not registered".into()),
        (_, None) => (false, "the node has not reported its condition".into()),
        (_, Some(ready)) => (ready.status == "True", ready.message.clone().unwrap_or_default()),
    }
}
