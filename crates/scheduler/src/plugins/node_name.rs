//! NodeName: rejects all nodes but the one that the pod names.

use kube::ResourceExt;

use super::SchedulerPlugin;
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct NodeName;

impl SchedulerPlugin for NodeName {
    fn filter_node(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let requested = pod.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("");
        let name = node.node.as_ref().map(|node| node.name_any()).unwrap_or_default();
        match requested.is_empty() || requested == name {
            true => Ok(()),
            false => Err(vec!["node(s) didn't match the requested node name".into()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn only_the_named_node_is_accepted() {
        let node = json!({"metadata": {"name": "a"}});
        check(&NodeName, json!({}), node.clone(), "");
        check(&NodeName, json!({"spec": {"nodeName": "a"}}), node.clone(), "");
        check(&NodeName, json!({"spec": {"nodeName": "b"}}), node, "node(s) didn't match the requested node name");
    }
}
