//! Orders pods for deletion when scaling down, as upstream's `ActivePods` and `ActivePodsWithRanks`.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    pod_availability::{is_pod_active, is_pod_ready, pod_phase, pod_ready_since},
    pod_view::PodView,
};

/// Returns the `count` pods to delete first. `related` are pods that count as neighbours on a node.
pub(crate) fn pods_to_delete(
    mut pods: Vec<Arc<PodView>>,
    related: &[Arc<PodView>],
    count: usize,
    now: Timestamp,
) -> Vec<Arc<PodView>> {
    if count < pods.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        related
            .iter()
            .filter(|pod| is_pod_active(pod))
            .for_each(|pod| *on_node.entry(node_name(pod)).or_default() += 1);
        let neighbours = |pod: &PodView| on_node.get(node_name(pod)).copied().unwrap_or(0);
        pods.sort_by(|a, b| compare_pods(a, b, &neighbours, now));
    }
    pods.truncate(count);
    pods
}

/// Total order for deletion: unassigned, pending, not ready, low deletion cost, more neighbours, recently ready, more
/// restarts, recently created first.
fn compare_pods(a: &PodView, b: &PodView, neighbours: &dyn Fn(&PodView) -> usize, now: Timestamp) -> Ordering {
    let assigned = |pod: &PodView| !node_name(pod).is_empty();
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase_order(a).cmp(&phase_order(b)))
        .then_with(|| is_pod_ready(a).cmp(&is_pod_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| neighbours(b).cmp(&neighbours(a)))
        .then_with(|| logarithmic_age(pod_ready_since(a), now).cmp(&logarithmic_age(pod_ready_since(b), now)))
        .then_with(|| max_restarts(b).cmp(&max_restarts(a)))
        .then_with(|| logarithmic_age(creation_time(a), now).cmp(&logarithmic_age(creation_time(b), now)))
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

/// Sorts pods so that those to delete first come first: unassigned, pending, not ready, recently ready, more restarts,
/// recently created. The order of equal pods is kept.
pub(crate) fn sort_active_pods(pods: &mut [Arc<PodView>]) {
    let assigned = |pod: &PodView| !node_name(pod).is_empty();
    // An absent time counts as the most recent.
    let recent_first = |a: Option<Timestamp>, b: Option<Timestamp>| {
        (a.is_some(), std::cmp::Reverse(a)).cmp(&(b.is_some(), std::cmp::Reverse(b)))
    };
    pods.sort_by(|a, b| {
        assigned(a)
            .cmp(&assigned(b))
            .then_with(|| phase_order(a).cmp(&phase_order(b)))
            .then_with(|| is_pod_ready(a).cmp(&is_pod_ready(b)))
            .then_with(|| recent_first(pod_ready_since(a), pod_ready_since(b)))
            .then_with(|| max_restarts(b).cmp(&max_restarts(a)))
            .then_with(|| recent_first(creation_time(a), creation_time(b)))
    });
}

fn node_name(pod: &PodView) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("")
}

fn phase_order(pod: &PodView) -> u8 {
    match pod_phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

fn deletion_cost(pod: &PodView) -> i32 {
    let cost = pod.metadata.annotations.as_ref().and_then(|all| all.get("controller.kubernetes.io/pod-deletion-cost"));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

fn creation_time(pod: &PodView) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The highest number of restarts among the containers, then among the sidecars.
fn max_restarts(pod: &PodView) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let regular = status.container_statuses.iter().flatten().map(|container| container.restart_count).max();
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let sidecar = status
        .init_container_statuses
        .iter()
        .flatten()
        .filter(|container| sidecars.contains(&container.name.as_str()))
        .map(|container| container.restart_count)
        .max();
    (regular.unwrap_or(0), sidecar.unwrap_or(0))
}

/// Logarithm of the age: pods of about the same age tie and are ordered by uid, which spreads deletions. An absent time
/// sorts first.
fn logarithmic_age(time: Option<Timestamp>, now: Timestamp) -> Option<u32> {
    time.map(|time| now.duration_since(time).as_nanos().max(1).ilog2())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2030-01-01T00:00:00Z";

    fn pod(name: &str, spec: Value, status: Value, annotations: Value) -> Arc<PodView> {
        let object = json!({"metadata": {"name": name, "uid": name, "annotations": annotations,
            "creationTimestamp": "2029-12-31T00:00:00Z"}, "spec": spec, "status": status});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn running(name: &str, node: &str, ready_since: &str) -> Arc<PodView> {
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": ready_since}]);
        pod(
            name,
            json!({"nodeName": node, "containers": []}),
            json!({"phase": "Running", "conditions": ready}),
            json!({}),
        )
    }

    /// Checks that the first pod is deleted, in either input order.
    fn check(first: Arc<PodView>, second: Arc<PodView>, related: &[Arc<PodView>]) {
        for pods in [vec![first.clone(), second.clone()], vec![second.clone(), first.clone()]] {
            let chosen = pods_to_delete(pods, related, 1, NOW.parse().unwrap());
            assert_eq!(chosen[0].metadata.name, first.metadata.name);
        }
    }

    #[test]
    fn unhealthy_pods_are_deleted_first() {
        let healthy = running("z", "n1", "2029-12-31T12:00:00Z");
        let containers = json!({"nodeName": "n1", "containers": []});
        check(pod("a", json!({"containers": []}), json!({"phase": "Running"}), json!({})), healthy.clone(), &[]);
        check(pod("a", containers.clone(), json!({"phase": "Pending"}), json!({})), healthy.clone(), &[]);
        check(pod("a", containers.clone(), json!({"phase": "Unknown"}), json!({})), healthy.clone(), &[]);
        check(pod("a", containers.clone(), json!({"phase": "Running"}), json!({})), healthy.clone(), &[]);
        check(running("a", "n1", "2029-12-31T23:59:00Z"), healthy.clone(), &[]);
    }

    #[test]
    fn deletion_cost_precedes_neighbours_and_age() {
        let (old, young) =
            (running("old", "n1", "2029-12-01T00:00:00Z"), running("young", "n2", "2029-12-31T23:00:00Z"));
        let crowd = [running("c", "n1", "2029-12-31T12:00:00Z"), old.clone(), young.clone()];
        check(young.clone(), old.clone(), &[]);
        check(old.clone(), young.clone(), &crowd);
        let mut cheap = (*young).clone();
        cheap.metadata.annotations = Some([("controller.kubernetes.io/pod-deletion-cost".into(), "-1".into())].into());
        check(Arc::new(cheap), old, &crowd);
    }

    #[test]
    fn restarts_break_ties() {
        let status = |restarts| {
            json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
                "restartCount": restarts}]})
        };
        let spec = json!({"nodeName": "n1", "containers": []});
        check(pod("b", spec.clone(), status(3), json!({})), pod("a", spec, status(1), json!({})), &[]);
    }

    #[test]
    fn any_mixture_of_pods_has_a_total_order() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let pods: Vec<Arc<PodView>> = (0..60)
                .map(|at| {
                    let since = format!("2029-12-{:02}T00:00:{:02}Z", random.u8(20..31), random.u8(..3));
                    running(&format!("p{at}"), ["", "a", "b"][random.usize(..3)], &since)
                })
                .collect();
            assert_eq!(pods_to_delete(pods.clone(), &pods, 57, NOW.parse().unwrap()).len(), 57);
        }
    }
}
