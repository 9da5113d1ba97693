//! The pods of this node: those of the API server and static pods.
//!
//! A static pod has a mirror pod in the API server, which shows its status and is never run itself. A lookup by name
//! returns the static pod, whose uid its containers have.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use client::{ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Notify, watch};

use crate::pod_metadata::{pod_name, pod_namespace, pod_uid};

/// Annotation of mirror pods: the uid of their static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotation of pods: where they come from.
pub const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

/// Whether the pod only mirrors a static pod.
pub fn is_mirror_pod(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR_ANNOTATION)
}

/// Whether the pod comes from a file or a URL.
pub fn is_static_pod(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SOURCE_ANNOTATION));
    source.is_some_and(|source| source != "api") && !is_mirror_pod(pod)
}

/// All pods of the node. Cheap to clone.
#[derive(Clone)]
pub struct PodManager {
    api: SharedInformer<Pod>,
    shared: Arc<StaticPods>,
}

#[derive(Default)]
struct StaticPods {
    /// By namespace and name.
    pods: RwLock<HashMap<(String, String), Arc<Pod>>>,
    /// Uids of pods with a worker.
    active: Mutex<HashSet<String>>,
    /// Wakes the upkeep of mirror pods.
    mirrors_changed: Notify,
    /// Whether all sources of static pods were read.
    sources_read: watch::Sender<bool>,
}

impl PodManager {
    /// Creates a manager over the pods that are bound to this node.
    pub fn new(api: SharedInformer<Pod>) -> Self {
        Self { api, shared: Arc::default() }
    }

    /// Waits for the pods of the API server.
    pub async fn wait_for_cache_sync(&self) {
        self.api.wait_for_cache_sync().await;
    }

    /// Notes that all sources of static pods were read.
    pub fn set_static_sources_read(&self) {
        self.shared.sources_read.send_replace(true);
    }

    /// Waits until all pods are known: those of the API server and the static ones.
    pub async fn wait_for_all_sources(&self) {
        self.api.wait_for_cache_sync().await;
        // The sender lives as long as this manager.
        let _ = self.shared.sources_read.subscribe().wait_for(|read| *read).await;
    }

    /// Calls `handler` with the events of pods to run; mirror pods are none.
    pub fn add_event_handler(&self, handler: impl Fn(&ResourceEvent<Pod>) + Send + Sync + 'static) {
        let shared = self.shared.clone();
        self.api.add_event_handler(move |event| match is_mirror_pod(event.object()) {
            true => shared.mirrors_changed.notify_one(),
            false => handler(event),
        });
    }

    /// Returns all pods that this node runs.
    pub fn list(&self) -> Vec<Arc<Pod>> {
        let api = self.api.list().into_iter().filter(|pod| !is_mirror_pod(pod));
        api.chain(self.static_pods()).collect()
    }

    /// Returns a pod that this node runs.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.static_pod(namespace, name).or_else(|| self.api.get(namespace, name).filter(|pod| !is_mirror_pod(pod)))
    }

    /// Returns the mirror pods in the API server.
    pub fn mirror_pods(&self) -> Vec<Arc<Pod>> {
        self.api.list().into_iter().filter(|pod| is_mirror_pod(pod)).collect()
    }

    /// Returns the API server's pod of a static pod's name, whether it mirrors it or not.
    pub fn api_pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.api.get(namespace, name)
    }

    /// Returns the mirror of this static pod.
    pub fn mirror_of(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let mirror = self.api.get(pod_namespace(pod), pod_name(pod))?;
        let of = mirror.metadata.annotations.as_ref()?.get(MIRROR_ANNOTATION)?;
        (of == pod_uid(pod) && mirror.metadata.deletion_timestamp.is_none()).then_some(mirror)
    }

    /// Returns the static pods.
    pub fn static_pods(&self) -> Vec<Arc<Pod>> {
        self.shared.pods.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn static_pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let pods = self.shared.pods.read().unwrap_or_else(PoisonError::into_inner);
        pods.get(&(namespace.into(), name.into())).cloned()
    }

    /// Replaces the static pods; returns the events for the pod workers, ends before starts.
    pub fn set_static_pods(&self, wanted: Vec<Arc<Pod>>) -> Vec<ResourceEvent<Pod>> {
        let key = |pod: &Pod| (pod_namespace(pod).to_string(), pod_name(pod).to_string());
        let wanted: HashMap<_, _> = wanted.into_iter().map(|pod| (key(&pod), pod)).collect();
        let mut pods = self.shared.pods.write().unwrap_or_else(PoisonError::into_inner);
        let same = |a: &Pod, b: Option<&Arc<Pod>>| b.is_some_and(|b| pod_uid(a) == pod_uid(b));
        let gone = pods.iter().filter(|(key, pod)| !same(pod, wanted.get(*key)));
        let mut events: Vec<_> = gone.map(|(_, pod)| ResourceEvent::Deleted(pod.clone())).collect();
        let new = wanted.iter().filter(|(key, pod)| !same(pod, pods.get(*key)));
        events.extend(new.map(|(_, pod)| ResourceEvent::Added(pod.clone())));
        let kept = |(key, pod): (_, Arc<Pod>)| {
            let old = pods.get(&key).filter(|old| pod_uid(old) == pod_uid(&pod)).cloned();
            (key, old.unwrap_or(pod))
        };
        let wanted = wanted.into_iter().map(kept).collect();
        *pods = wanted;
        drop(pods);
        self.shared.mirrors_changed.notify_one();
        events
    }

    /// Waits until mirror pods may have to be created or deleted.
    pub async fn wait_for_mirror_changes(&self) {
        self.shared.mirrors_changed.notified().await;
    }

    /// Says that a pod has a worker, or has none any more.
    pub fn set_active(&self, uid: &str, active: bool) {
        let mut uids = self.lock_active();
        match active {
            true => uids.insert(uid.to_string()),
            false => uids.remove(uid),
        };
        drop(uids);
        self.shared.mirrors_changed.notify_one();
    }

    /// Whether the pod has a worker.
    pub fn is_active(&self, uid: &str) -> bool {
        self.lock_active().contains(uid)
    }

    fn lock_active(&self) -> MutexGuard<'_, HashSet<String>> {
        self.shared.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str) -> Arc<Pod> {
        let annotations = json!({ SOURCE_ANNOTATION: "file" });
        let metadata = json!({ "name": name, "namespace": "ns", "uid": uid, "annotations": annotations });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    #[tokio::test]
    async fn changed_static_pod_ends_before_its_successor_starts() {
        let manager = crate::context::KubeletContext::unreachable().pods;
        let names = |events: Vec<ResourceEvent<Pod>>| -> Vec<String> {
            let name = |event: &ResourceEvent<Pod>| match event {
                ResourceEvent::Deleted(pod) => format!("-{}", pod_uid(pod)),
                other => format!("+{}", pod_uid(other.object())),
            };
            events.iter().map(name).collect()
        };
        assert_eq!(names(manager.set_static_pods(vec![pod("a", "1")])), ["+1"]);
        assert_eq!(names(manager.set_static_pods(vec![pod("a", "1")])), Vec::<String>::new());
        assert_eq!(names(manager.set_static_pods(vec![pod("a", "2")])), ["-1", "+2"]);
        assert_eq!(manager.get("ns", "a").as_deref().map(pod_uid), Some("2"));
        assert_eq!(names(manager.set_static_pods(vec![])), ["-2"]);
        assert!(is_static_pod(&pod("a", "1")) && manager.list().is_empty());
    }
}
