//! One attempt to find a node for one pod: filter, score, assume, bind; or say why no node fits.

use std::{collections::BTreeMap, sync::Arc};

use client::ApiErrorExt;
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
    cache::{Cache, NodeInfo, PodInfo},
    plugins::{Normalize, PLUGINS, Plugin},
    queue::{Event, Waiting},
    watch,
};

/// The highest score that a plug-in gives.
const MAX_SCORE: i64 = 100;

/// Why no node was found.
#[derive(Debug, PartialEq, Eq)]
struct NoFit {
    message: String,
    /// What may change that.
    helped_by: Vec<Event>,
}

impl Scheduler {
    pub(crate) async fn schedule(self: &Arc<Self>, waiting: Waiting) {
        let Some(pod) = self.pods.get(&waiting.namespace, &waiting.name).filter(|pod| is_same(pod, &waiting)) else {
            return;
        };
        if !watch::is_waiting(&pod) || self.cache().is_placed(&waiting.uid) {
            return;
        }
        let info = PodInfo::new(pod.clone());
        let chosen = {
            let mut cache = self.cache();
            let chosen = choose(&info, &cache);
            if let Ok(node) = &chosen {
                cache.place(&waiting.uid, node, info);
            }
            chosen
        };
        match chosen {
            Ok(node) => {
                let scheduler = self.clone();
                tokio::spawn(async move { scheduler.bind(waiting, pod, node).await });
            }
            Err(no_fit) => {
                self.queue.unschedulable(waiting, no_fit.helped_by);
                let scheduler = self.clone();
                tokio::spawn(async move { scheduler.report(&pod, no_fit.message).await });
            }
        }
    }

    /// Binds the pod; until the informer shows that, the cache has it on the node already.
    async fn bind(&self, waiting: Waiting, pod: Arc<Pod>, node: String) {
        let metadata = ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..Default::default()
        };
        let target = ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..Default::default() };
        let binding = Binding { metadata, target };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &waiting.namespace);
        let bound: Result<serde_json::Value, _> =
            api.create_subresource("binding", &waiting.name, &PostParams::default(), &binding).await;
        match bound {
            Ok(_) => {
                let message = format!("Successfully assigned {}/{} to {node}", waiting.namespace, waiting.name);
                self.recorder.normal(pod.object_ref(&()), "Scheduled", message);
            }
            Err(error) => self.bind_failed(waiting, &pod, error),
        }
    }

    fn bind_failed(&self, waiting: Waiting, pod: &Pod, error: kube::Error) {
        // Bound by someone else meanwhile: then the informer has placed it, where it stays.
        let current = self.pods.get(&waiting.namespace, &waiting.name).filter(|pod| is_same(pod, &waiting));
        if current.as_ref().is_some_and(|pod| watch::node_of(pod).is_some()) {
            return;
        }
        self.cache().remove(&waiting.uid);
        self.queue.wake(Event::PodGone);
        if current.is_none() || error.is_not_found() {
            return;
        }
        self.recorder.warning(pod.object_ref(&()), "FailedScheduling", format!("binding rejected: {}", error.reply()));
        self.queue.retry(waiting);
    }

    /// Says in the pod's status and in an event why it has no node.
    async fn report(&self, pod: &Pod, message: String) {
        self.recorder.warning(pod.object_ref(&()), "FailedScheduling", message.clone());
        if is_reported(pod, &message) {
            return;
        }
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastProbeTime": null, "lastTransitionTime": last_transition(pod)});
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
        match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if !error.is_not_found() => tracing::warn!(pod = pod.name_any(), %error, "status not written"),
            _ => {}
        }
    }
}

fn is_same(pod: &Pod, waiting: &Waiting) -> bool {
    pod.metadata.uid.as_ref() == Some(&waiting.uid)
}

fn is_reported(pod: &Pod, message: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
    conditions.iter().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.message.as_deref() == Some(message)
    })
}

/// The condition keeps its time as long as only its message changes.
fn last_transition(pod: &Pod) -> Time {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
    let current = conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    current.and_then(|condition| condition.last_transition_time.clone()).unwrap_or_else(|| Time(Timestamp::now()))
}

/// The best node for the pod.
fn choose(pod: &PodInfo, cache: &Cache) -> Result<String, NoFit> {
    let nodes: Vec<_> = cache.nodes().collect();
    if nodes.is_empty() {
        return Err(NoFit { message: "no nodes available to schedule pods".into(), helped_by: vec![Event::Node] });
    }
    let refusal = PLUGINS.iter().find_map(|plugin| plugin.admit(pod).err());
    if let Some(reason) = refusal {
        return Err(NoFit {
            message: format!("0/{} nodes are available: {reason}.", nodes.len()),
            helped_by: Vec::new(),
        });
    }
    let feasible = filter(pod, &nodes)?;
    Ok(best(pod, &feasible))
}

/// The nodes that no plug-in rejects.
fn filter<'a>(pod: &PodInfo, nodes: &[(&'a str, &'a NodeInfo)]) -> Result<Vec<(&'a str, &'a NodeInfo)>, NoFit> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut helped_by = Vec::new();
    let mut feasible = Vec::new();
    for (name, node) in nodes {
        match PLUGINS.iter().find_map(|plugin| plugin.filter(pod, node).err().map(|found| (plugin, found))) {
            None => feasible.push((*name, *node)),
            Some((plugin, found)) => {
                found.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
                helped_by.extend(plugin.helped_by());
            }
        }
    }
    if !feasible.is_empty() {
        return Ok(feasible);
    }
    helped_by.dedup();
    let mut counted: Vec<_> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.sort();
    Err(NoFit { message: format!("0/{} nodes are available: {}.", nodes.len(), counted.join(", ")), helped_by })
}

/// The node with the highest score; among several, any.
fn best(pod: &PodInfo, nodes: &[(&str, &NodeInfo)]) -> String {
    let mut totals = vec![0; nodes.len()];
    for plugin in PLUGINS.iter().filter(|plugin| plugin.weight() > 0) {
        let scores = scores(*plugin, pod, nodes);
        totals.iter_mut().zip(scores).for_each(|(total, score)| *total += score * plugin.weight());
    }
    let highest = totals.iter().copied().max().unwrap_or(0);
    let candidates: Vec<_> =
        totals.iter().zip(nodes).filter(|(total, _)| **total == highest).map(|(_, node)| node.0).collect();
    let index = fastrand::usize(..candidates.len().max(1));
    candidates.get(index).map(|name| (*name).to_owned()).unwrap_or_default()
}

/// One plug-in's scores, each between zero and [`MAX_SCORE`].
fn scores(plugin: &dyn Plugin, pod: &PodInfo, nodes: &[(&str, &NodeInfo)]) -> Vec<i64> {
    let raw: Vec<i64> = nodes.iter().map(|(_, node)| plugin.score(pod, node)).collect();
    let most = raw.iter().copied().max().unwrap_or(0);
    let scaled = |score: i64| if most == 0 { 0 } else { score * MAX_SCORE / most };
    match plugin.normalize() {
        Normalize::AsIs => raw,
        Normalize::MoreIsBetter => raw.into_iter().map(scaled).collect(),
        Normalize::FewerIsBetter => raw.into_iter().map(|score| MAX_SCORE - scaled(score)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cache(nodes: Value) -> Cache {
        let mut cache = Cache::default();
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
    fn failures_are_told_as_upstream_tells_them() {
        let check = |nodes: Value, pod: &PodInfo, message: &str| {
            assert_eq!(choose(pod, &cache(nodes)).unwrap_err().message, message);
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
    fn the_emptier_node_wins() {
        let mut cache = cache(json!({"a": node("4"), "b": node("4")}));
        cache.place("1", "a", wants("2"));
        for _ in 0..10 {
            assert_eq!(choose(&wants("1"), &cache).unwrap(), "b");
        }
    }

    #[test]
    fn what_is_assumed_counts() {
        let mut cache = cache(json!({"a": node("2")}));
        cache.place("1", "a", wants("2"));
        let no_fit = choose(&wants("1"), &cache).unwrap_err();
        assert_eq!(no_fit.helped_by, [Event::Node, Event::PodGone]);
        cache.remove("1");
        assert_eq!(choose(&wants("1"), &cache).unwrap(), "a");
    }
}
