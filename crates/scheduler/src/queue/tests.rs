//! Tests of the queue without plug-ins.

use serde_json::{Value, json};

use super::*;
use crate::framework::cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, ObjectChange};
use crate::plugins::priority_sort::PrioritySort;

fn pod(uid: &str, more: Value) -> Arc<PodInfo> {
    let mut pod = json!({"metadata": {"uid": uid, "name": uid, "namespace": "ns"}, "spec": {"containers": []}});
    if let (Some(spec), Some(more)) = (pod["spec"].as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    Arc::new(PodInfo::from_pod(&serde_json::from_value(pod).unwrap()))
}

fn queue() -> SchedulingQueue {
    SchedulingQueue::new(Arc::new(PrioritySort), QueueDurations::default())
}

fn popped(queue: &SchedulingQueue) -> QueuedPodInfo {
    queue.pop().unwrap()
}

#[test]
fn pods_are_popped_by_priority_and_age() {
    let queue = queue();
    for (uid, priority) in [("1", 0), ("2", 5), ("3", 0), ("4", 5)] {
        queue.add_pod(pod(uid, json!({"priority": priority})));
    }
    let order: Vec<String> = (0..4).map(|_| popped(&queue).pod.uid.to_string()).collect();
    assert_eq!(order, ["2", "4", "1", "3"]);
    queue.close();
    assert!(queue.pop().is_none());
}

#[test]
fn rejected_pods_wait_in_the_pool_and_failed_ones_in_back_off() {
    let queue = queue();
    queue.add_pod(pod("1", json!({})));
    queue.add_pod(pod("2", json!({})));
    let mut rejected = popped(&queue);
    rejected.unschedulable_plugins.push("NodeResourcesFit");
    queue.add_unschedulable(rejected);
    let failed = popped(&queue);
    queue.add_unschedulable(failed);
    assert_eq!(queue.counts(), [0, 1, 1, 0]);
    queue.activate(&["1".into()]);
    assert_eq!(queue.counts(), [1, 1, 0, 0]);
    queue.delete_pod("1");
    queue.delete_pod("2");
    assert_eq!(queue.counts(), [0; 4]);
}

#[test]
fn deleted_pod_in_flight_does_not_come_back_twice() {
    let queue = queue();
    queue.add_pod(pod("1", json!({})));
    let entry = popped(&queue);
    queue.update_pod(&entry.pod.clone(), &pod("1", json!({"priority": 1})));
    assert_eq!(queue.counts(), [0; 4]);
    queue.done("1");
    queue.add_unschedulable(entry);
    assert_eq!(queue.counts(), [0, 1, 0, 0]);
}

#[test]
fn back_off_doubles_up_to_its_limit() {
    let durations = QueueDurations::default();
    let mut entry = QueuedPodInfo::new(pod("1", json!({})), Duration::ZERO);
    assert_eq!(backoff_expiration(&entry, &durations), None);
    for (count, seconds) in [(1, 1), (2, 2), (4, 8), (5, 10), (40, 10)] {
        entry.unschedulable_count = count;
        assert_eq!(backoff_expiration(&entry, &durations), Some(Duration::from_secs(seconds)));
    }
}

#[tokio::test]
async fn node_that_fits_wakes_only_the_pods_it_fits() {
    const PENDING: usize = 50_000;
    const SMALL: usize = 10;
    let queue = queue();
    queue.bind(QueueBindings { frameworks: vec![Arc::new(crate::differential::framework())], pods: None });
    for number in 0..PENDING {
        let cpu = if number < SMALL { "1" } else { "100" };
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        queue.add_pod(pod(&number.to_string(), json!({"containers": [container]})));
    }
    for _ in 0..PENDING {
        let mut entry = popped(&queue);
        entry.unschedulable_plugins.push("NodeResourcesFit");
        queue.add_unschedulable(entry);
    }
    assert_eq!(queue.counts(), [0, 0, PENDING, 0]);
    let node = |cpu: &str, labels: Value| {
        let node = json!({"metadata": {"name": "n", "labels": labels},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}});
        Arc::new(crate::views::node_info::NodeView::from_node(&serde_json::from_value(node).unwrap()))
    };
    let event = |action, old, new| {
        let object = EventObject::Node(ObjectChange { old, new });
        queue.move_pods_on_event(ClusterEvent::new(EventResource::Node, action), object, None);
    };
    let (small, labeled, large) = (node("500m", json!({})), node("500m", json!({"a": "b"})), node("4", json!({})));
    event(ActionType::UPDATE_NODE_LABEL, Some(small.clone()), Some(labeled));
    assert_eq!(queue.counts(), [0, 0, PENDING, 0], "nothing that the plug-in reads has changed");
    event(ActionType::ADD, None, Some(small));
    assert_eq!(queue.counts(), [0, 0, PENDING, 0], "the node is too small for all");
    event(ActionType::ADD, None, Some(large));
    let [active, backoff, unschedulable, _] = queue.counts();
    assert_eq!((active + backoff, unschedulable), (SMALL, PENDING - SMALL));
}
