//! DaemonSet status: counts of nodes.

use std::sync::Arc;

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetStatus},
    core::v1::Node,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::{
    placement::{NodePlacement, node_placement},
    plan::{PodsByNode, compare_by_age, is_available},
    template::is_pod_updated,
};
use crate::pod_availability::is_pod_ready;

/// Counts the nodes that should and do run a pod. The oldest pod of a node counts.
pub(super) fn calculate_status(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    pods: &PodsByNode,
    hash: &str,
    now: Timestamp,
) -> DaemonSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        collision_count: old.collision_count,
        conditions: old.conditions,
        observed_generation: old.observed_generation,
        ..Default::default()
    };
    let (mut available, mut updated) = (0, 0);
    for node in nodes {
        let on_node = pods.get(node.metadata.name.as_deref().unwrap_or(""));
        let oldest = on_node.and_then(|pods| pods.iter().min_by(|a, b| compare_by_age(a, b)));
        if node_placement(set, node) != NodePlacement::Run {
            status.number_misscheduled += i32::from(oldest.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = oldest else { continue };
        status.current_number_scheduled += 1;
        if is_pod_ready(pod) {
            status.number_ready += 1;
            available += i32::from(is_available(set, pod, now));
        }
        updated += i32::from(is_pod_updated(set, pod, hash));
    }
    status.number_available = Some(available);
    status.updated_number_scheduled = Some(updated);
    status.number_unavailable = Some(status.desired_number_scheduled - available);
    status
}

/// Whether the counts are equal and the generation is observed.
fn is_status_current(set: &DaemonSet, status: &DaemonSetStatus) -> bool {
    let counts = |status: &DaemonSetStatus| {
        let optional = [status.updated_number_scheduled, status.number_available, status.number_unavailable];
        (
            status.desired_number_scheduled,
            status.current_number_scheduled,
            status.number_misscheduled,
            status.number_ready,
            optional.map(|count| count.unwrap_or(0)),
        )
    };
    let old = set.status.clone().unwrap_or_default();
    counts(&old) == counts(status) && old.observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0)
}

/// Writes the counts if they changed and returns the written set; a failure is retried once on the latest version.
/// `observed` raises the observed generation.
pub(super) async fn update_status(
    client: &Client,
    set: &DaemonSet,
    counted: &DaemonSetStatus,
    observed: bool,
) -> Result<Option<DaemonSet>, kube::Error> {
    if is_status_current(set, counted) {
        return Ok(None);
    }
    let name = set.name_any();
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), set.metadata.namespace.as_deref().unwrap_or(""));
    let with_counts = |mut update: DaemonSet| {
        let old = update.status.take().unwrap_or_default();
        let observed_generation = if observed { set.metadata.generation } else { old.observed_generation };
        update.status = Some(DaemonSetStatus {
            observed_generation,
            collision_count: old.collision_count,
            conditions: old.conditions,
            ..counted.clone()
        });
        update
    };
    match api.replace_status(&name, &PostParams::default(), &with_counts(set.clone())).await {
        Err(error) if !error.is_not_found() => {
            let fresh = with_counts(api.get(&name).await?);
            api.replace_status(&name, &PostParams::default(), &fresh).await.map(Some)
        }
        written => written.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod_view::PodView;

    fn pod(name: &str, node: &str, revision: &str, ready: bool, age: u8) -> Arc<PodView> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "creationTimestamp": format!("2030-01-01T00:00:0{age}Z"),
                "labels": {"controller-revision-hash": revision}}, "spec": {"containers": [], "nodeName": node},
                "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}))
            .unwrap(),
        )
    }

    #[test]
    fn nodes_are_counted() {
        let mut set: DaemonSet = serde_json::from_value(json!({"metadata": {"generation": 2}, "spec": {"selector": {},
            "minReadySeconds": 10, "template": {"spec": {"containers": []}}}}))
        .unwrap();
        let node = |name: &str| -> Arc<Node> {
            let taints = (name == "x").then(|| json!([{"key": "k", "effect": "NoSchedule"}]));
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).unwrap())
        };
        let nodes = ["a", "b", "c", "x"].map(node);
        let mut pods = PodsByNode::new();
        pods.insert("a".into(), vec![pod("2", "a", "new", false, 5), pod("1", "a", "old", true, 1)]);
        pods.insert("b".into(), vec![pod("3", "b", "new", false, 0)]);
        pods.insert("x".into(), vec![pod("4", "x", "new", true, 0)]);
        let count = |second: &str| {
            let now = format!("2030-01-01T00:00:{second}Z").parse().unwrap();
            calculate_status(&set, &nodes, &pods, "new", now)
        };
        let status = count("10");
        assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (3, 2));
        assert_eq!((status.number_misscheduled, status.number_ready), (1, 1));
        assert_eq!((status.number_available, status.number_unavailable), (Some(1), Some(2)));
        assert_eq!(status.updated_number_scheduled, Some(1));
        assert_eq!(count("09").number_available, Some(0));
        assert!(!is_status_current(&set, &status));
        set.status = Some(DaemonSetStatus { observed_generation: Some(2), ..status.clone() });
        assert!(is_status_current(&set, &status));
        set.metadata.generation = Some(3);
        assert!(!is_status_current(&set, &status));
    }
}
