//! Prefers nodes with fewer pods of the same controller, so that one node's end does not end them all.

use k8s_openapi::api::core::v1::Pod;

use super::{Normalize, Plugin};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct SelectorSpread;

impl Plugin for SelectorSpread {
    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(controller) = controller(&pod.pod) else { return 0 };
        let siblings = node.pods.values().filter(|other| {
            other.pod.metadata.deletion_timestamp.is_none() && self::controller(&other.pod) == Some(controller)
        });
        i64::try_from(siblings.count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self) -> Normalize {
        Normalize::FewerIsBetter
    }

    fn weight(&self) -> i64 {
        2
    }
}

/// The uid of the pod's controller.
fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests, *};

    fn owned(uid: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": true}]}})
    }

    #[test]
    fn siblings_are_counted() {
        let mut node = tests::node(json!({}));
        for (name, uid) in [("1", "x"), ("2", "x"), ("3", "y")] {
            node.add(name.into(), tests::pod(owned(uid)));
        }
        assert_eq!(SelectorSpread.score(&tests::pod(owned("x")), &node), 2);
        assert_eq!(SelectorSpread.score(&tests::pod(owned("z")), &node), 0);
        assert_eq!(SelectorSpread.score(&tests::pod(json!({})), &node), 0);
    }
}
