//! The scheduling cycle of one pod: filter, score, assume and bind, or report why no node fits.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use client::{
    ApiErrorExt,
    panics::{contain_panic, contain_panic_sync},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    Scheduler,
    cache::{NodeInfo, PodInfo, SchedulerCache},
    event_handlers,
    plugins::{PLUGINS, SchedulerPlugin, ScoreNormalization},
    scheduling_queue::{ClusterEvent, QueuedPodInfo},
};

/// Component label of logs and metrics.
const COMPONENT: &str = "kube-scheduler";
/// The highest score of a plug-in.
const MAX_SCORE: i64 = 100;

/// No node fits the pod.
#[derive(Debug, PartialEq, Eq)]
struct FitError {
    message: String,
    /// Events that may make a node fit.
    events_to_register: Vec<ClusterEvent>,
}

impl Scheduler {
    /// Runs one scheduling attempt in a span of its own. After a panic the pod is queued again with back-off.
    pub(crate) fn attempt_scheduling(
        self: &Arc<Self>,
        pod: QueuedPodInfo,
        schedule: impl FnOnce(&Arc<Self>, QueuedPodInfo),
    ) {
        let key = format!("{}/{}", pod.namespace, pod.name);
        let span = tracing::debug_span!("schedule", pod = key);
        let (started, _entered) = (Instant::now(), span.enter());
        if contain_panic_sync(COMPONENT, &key, || schedule(self, pod.clone())).is_err() {
            self.retry_after_panic(pod);
        }
        tracing::debug!(pod = key, duration = ?started.elapsed(), "scheduling attempt finished");
    }

    /// Takes back an assumed placement and queues the pod with back-off.
    fn retry_after_panic(&self, pod: QueuedPodInfo) {
        self.lock_cache().remove_pod(&pod.uid);
        self.queue.add_backoff(pod);
    }

    /// Finds a node for a popped pod and binds it in the background, or reports why none fits.
    pub(crate) fn schedule_one(self: &Arc<Self>, queued: QueuedPodInfo) {
        let Some(pod) = self.pods.get(&queued.namespace, &queued.name).filter(|pod| is_same_pod(pod, &queued)) else {
            return;
        };
        if !event_handlers::needs_scheduling(&pod) || self.lock_cache().contains_pod(&queued.uid) {
            return;
        }
        let info = PodInfo::new(pod.clone());
        let chosen = {
            let mut cache = self.lock_cache();
            let chosen = schedule_pod(&info, &cache);
            if let Ok(node) = &chosen {
                cache.add_pod(&queued.uid, node, info);
            }
            chosen
        };
        match chosen {
            Ok(node) => {
                let scheduler = self.clone();
                tokio::spawn(async move {
                    let key = format!("{}/{}", queued.namespace, queued.name);
                    let bind = || scheduler.bind_pod(queued.clone(), pod, node);
                    if contain_panic(COMPONENT, key, bind).await.is_err() {
                        scheduler.retry_after_panic(queued);
                    }
                });
            }
            Err(no_fit) => {
                self.queue.add_unschedulable(queued, no_fit.events_to_register);
                let scheduler = self.clone();
                tokio::spawn(async move { scheduler.report_unschedulable(&pod, no_fit.message).await });
            }
        }
    }

    /// Binds the pod, which the cache already assumes to be on the node.
    async fn bind_pod(&self, queued: QueuedPodInfo, pod: Arc<Pod>, node: String) {
        let metadata = ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..Default::default()
        };
        let target = ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..Default::default() };
        let binding = Binding { metadata, target };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &queued.namespace);
        let bound: Result<serde_json::Value, _> =
            api.create_subresource("binding", &queued.name, &PostParams::default(), &binding).await;
        match bound {
            Ok(_) => {
                let message = format!("Successfully assigned {}/{} to {node}", queued.namespace, queued.name);
                self.recorder.record_normal(pod.object_ref(&()), "Scheduled", message);
            }
            Err(error) => self.handle_binding_failure(queued, &pod, error),
        }
    }

    fn handle_binding_failure(&self, queued: QueuedPodInfo, pod: &Pod, error: kube::Error) {
        // If another scheduler bound it, the informer has placed it.
        let current = self.pods.get(&queued.namespace, &queued.name).filter(|pod| is_same_pod(pod, &queued));
        if current.as_ref().is_some_and(|pod| event_handlers::assigned_node(pod).is_some()) {
            return;
        }
        self.lock_cache().remove_pod(&queued.uid);
        self.queue.move_pods_on_event(ClusterEvent::PodDeleted);
        if current.is_none() || error.is_not_found() {
            return;
        }
        self.recorder.record_warning(
            pod.object_ref(&()),
            "FailedScheduling",
            format!("binding rejected: {}", error.server_message()),
        );
        self.queue.add_backoff(queued);
    }

    /// Reports why the pod is unschedulable in an event and its condition.
    async fn report_unschedulable(&self, pod: &Pod, message: String) {
        self.recorder.record_warning(pod.object_ref(&()), "FailedScheduling", message.clone());
        if is_reported(pod, &message) {
            return;
        }
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastProbeTime": null, "lastTransitionTime": last_transition_time(pod)});
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
        match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(pod = pod.name_any(), %error, "scheduler: pod condition not written")
            }
            _ => {}
        }
    }
}

fn is_same_pod(pod: &Pod, queued: &QueuedPodInfo) -> bool {
    pod.metadata.uid.as_ref() == Some(&queued.uid)
}

fn is_reported(pod: &Pod, message: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
    conditions.iter().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.message.as_deref() == Some(message)
    })
}

/// Returns the transition time, kept as long as the condition stays false.
fn last_transition_time(pod: &Pod) -> Time {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
    let current = conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    current.and_then(|condition| condition.last_transition_time.clone()).unwrap_or_else(|| Time(Timestamp::now()))
}

/// Returns the best node for the pod.
fn schedule_pod(pod: &PodInfo, cache: &SchedulerCache) -> Result<String, FitError> {
    let nodes: Vec<_> = cache.nodes().collect();
    if nodes.is_empty() {
        return Err(FitError {
            message: "no nodes available to schedule pods".into(),
            events_to_register: vec![ClusterEvent::NodeChanged],
        });
    }
    let refusal = PLUGINS.iter().find_map(|plugin| plugin.pre_filter(pod).err());
    if let Some(reason) = refusal {
        return Err(FitError {
            message: format!("0/{} nodes are available: {reason}.", nodes.len()),
            events_to_register: Vec::new(),
        });
    }
    let feasible = find_nodes_that_fit(pod, &nodes)?;
    Ok(select_host(pod, &feasible))
}

/// Returns the nodes that pass every filter.
fn find_nodes_that_fit<'a>(
    pod: &PodInfo,
    nodes: &[(&'a str, &'a NodeInfo)],
) -> Result<Vec<(&'a str, &'a NodeInfo)>, FitError> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut helped_by = Vec::new();
    let mut feasible = Vec::new();
    for (name, node) in nodes {
        match PLUGINS.iter().find_map(|plugin| plugin.filter_node(pod, node).err().map(|found| (plugin, found))) {
            None => feasible.push((*name, *node)),
            Some((plugin, found)) => {
                found.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
                helped_by.extend(plugin.events_to_register());
            }
        }
    }
    if !feasible.is_empty() {
        return Ok(feasible);
    }
    helped_by.dedup();
    let mut counted: Vec<_> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.sort();
    Err(FitError {
        message: format!("0/{} nodes are available: {}.", nodes.len(), counted.join(", ")),
        events_to_register: helped_by,
    })
}

/// Returns a random node among those with the highest score.
fn select_host(pod: &PodInfo, nodes: &[(&str, &NodeInfo)]) -> String {
    let mut totals = vec![0; nodes.len()];
    for plugin in PLUGINS.iter().filter(|plugin| plugin.score_weight() > 0) {
        let scores = normalized_scores(*plugin, pod, nodes);
        totals.iter_mut().zip(scores).for_each(|(total, score)| *total += score * plugin.score_weight());
    }
    let highest = totals.iter().copied().max().unwrap_or(0);
    let candidates: Vec<_> =
        totals.iter().zip(nodes).filter(|(total, _)| **total == highest).map(|(_, node)| node.0).collect();
    let index = fastrand::usize(..candidates.len().max(1));
    candidates.get(index).map(|name| (*name).to_owned()).unwrap_or_default()
}

/// Returns one plug-in's scores, normalized to zero through [`MAX_SCORE`].
fn normalized_scores(plugin: &dyn SchedulerPlugin, pod: &PodInfo, nodes: &[(&str, &NodeInfo)]) -> Vec<i64> {
    let raw: Vec<i64> = nodes.iter().map(|(_, node)| plugin.score_node(pod, node)).collect();
    let most = raw.iter().copied().max().unwrap_or(0);
    let scaled = |score: i64| if most == 0 { 0 } else { score * MAX_SCORE / most };
    match plugin.score_normalization() {
        ScoreNormalization::Unchanged => raw,
        ScoreNormalization::Proportional => raw.into_iter().map(scaled).collect(),
        ScoreNormalization::Reversed => raw.into_iter().map(|score| MAX_SCORE - scaled(score)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cache(nodes: Value) -> SchedulerCache {
        let mut cache = SchedulerCache::default();
        for (name, mut node) in nodes.as_object().unwrap().clone() {
            node["metadata"]["name"] = json!(name);
            cache.set_node(&name, Arc::new(serde_json::from_value(node).unwrap()));
        }
        cache
    }

    fn pod(spec: Value) -> PodInfo {
        PodInfo::new(Arc::new(serde_json::from_value(json!({"spec": spec})).unwrap()))
    }

    fn node(cpu: &str) -> Value {
        json!({"status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}})
    }

    fn wants(cpu: &str) -> PodInfo {
        pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    #[test]
    fn fit_errors_match_upstream_messages() {
        let check = |nodes: Value, pod: &PodInfo, message: &str| {
            assert_eq!(schedule_pod(pod, &cache(nodes)).unwrap_err().message, message);
        };
        check(json!({}), &wants("1"), "no nodes available to schedule pods");
        check(json!({"a": node("1")}), &wants("2"), "0/1 nodes are available: 1 Insufficient cpu.");
        let mut tainted = node("4");
        tainted["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
        let nodes = json!({"a": node("1"), "b": node("1"), "c": tainted});
        check(nodes, &wants("2"), "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.");
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        let needs_volume = pod(json!({"containers": [], "volumes": volumes}));
        let message = "0/1 nodes are available: persistent volume claims are not supported by this scheduler.";
        check(json!({"a": node("1")}), &needs_volume, message);
    }

    #[test]
    fn least_allocated_node_is_selected() {
        let mut cache = cache(json!({"a": node("4"), "b": node("4")}));
        cache.add_pod("1", "a", wants("2"));
        for _ in 0..10 {
            assert_eq!(schedule_pod(&wants("1"), &cache).unwrap(), "b");
        }
    }

    #[test]
    fn assumed_pods_count_as_requested() {
        let mut cache = cache(json!({"a": node("2")}));
        cache.add_pod("1", "a", wants("2"));
        let no_fit = schedule_pod(&wants("1"), &cache).unwrap_err();
        assert_eq!(no_fit.events_to_register, [ClusterEvent::NodeChanged, ClusterEvent::PodDeleted]);
        cache.remove_pod("1");
        assert_eq!(schedule_pod(&wants("1"), &cache).unwrap(), "a");
    }

    /// A scheduler whose API server rejects every request.
    fn scheduler() -> Arc<Scheduler> {
        let reject = |_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, tower::BoxError>("unavailable".into())
        };
        let client = client::transport::in_process_client(tower::service_fn(reject), "test");
        let informers = client::SharedInformerFactory::new(client.clone(), tokio_util::sync::CancellationToken::new());
        Arc::new(Scheduler {
            nodes: informers.informer_for(),
            pods: informers.informer_for(),
            cache: std::sync::Mutex::default(),
            queue: crate::scheduling_queue::SchedulingQueue::default(),
            recorder: client::EventRecorder::new(client.clone(), "test", None),
            shutdown: tokio_util::sync::CancellationToken::new(),
            client,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_attempt_is_retried_with_backoff_and_its_placement_is_taken_back() {
        let (scheduler, before) = (scheduler(), client::panics::panic_count(COMPONENT));
        scheduler.lock_cache().set_node("a", Arc::default());
        scheduler.attempt_scheduling(QueuedPodInfo::new("ns", "web", "1", 0), |scheduler, pod| {
            scheduler.lock_cache().add_pod(&pod.uid, "a", wants("1"));
            panic!("a bug");
        });
        assert_eq!(client::panics::panic_count(COMPONENT), before + 1);
        assert!(!scheduler.lock_cache().contains_pod("1"));
        let started = tokio::time::Instant::now();
        assert_eq!(scheduler.queue.pop().await.name, "web");
        assert_eq!(started.elapsed().as_secs(), 1);
    }
}
