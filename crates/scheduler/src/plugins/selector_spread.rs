//! SelectorSpread: prefers nodes with fewer pods of the same controller.

use k8s_openapi::api::core::v1::Pod;

use super::{SchedulerPlugin, ScoreNormalization};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct SelectorSpread;

impl SchedulerPlugin for SelectorSpread {
    fn score_node(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(controller) = controller_uid(&pod.pod) else { return 0 };
        let siblings = node.pods.values().filter(|other| {
            other.pod.metadata.deletion_timestamp.is_none() && self::controller_uid(&other.pod) == Some(controller)
        });
        i64::try_from(siblings.count()).unwrap_or(i64::MAX)
    }

    fn score_normalization(&self) -> ScoreNormalization {
        ScoreNormalization::Reversed
    }

    fn score_weight(&self) -> i64 {
        2
    }
}

/// Returns the uid of the pod's controller.
fn controller_uid(pod: &Pod) -> Option<&str> {
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
    fn pods_of_the_same_controller_are_counted() {
        let mut node = tests::node(json!({}));
        for (name, uid) in [("1", "x"), ("2", "x"), ("3", "y")] {
            node.add_pod(name.into(), tests::pod(owned(uid)));
        }
        assert_eq!(SelectorSpread.score_node(&tests::pod(owned("x")), &node), 2);
        assert_eq!(SelectorSpread.score_node(&tests::pod(owned("z")), &node), 0);
        assert_eq!(SelectorSpread.score_node(&tests::pod(json!({})), &node), 0);
    }
}
