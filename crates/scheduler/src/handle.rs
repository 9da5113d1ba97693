//! State that plug-ins and cycles share: the client, the queue, the cache and the objects of the cluster.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use client::{EventSeriesRecorder, SharedInformer};
use kube::Client;
use tokio::runtime::Handle;

use crate::{
    cache::SchedulerCache,
    config::feature_gates::SchedulerFeatures,
    extender::Extenders,
    framework::{pre_bind_pods::PreBindPods, waiting_pods::WaitingPods},
    objects::ClusterObjects,
    pod_groups::PodGroupStates,
    queue::SchedulingQueue,
    views::{node_info::NodeView, pod_info::PodInfo},
};

/// The shared parts of a scheduler.
pub struct SchedulerHandle {
    /// Requests to the API server.
    pub client: Client,
    /// Runs what waits for the API server; the scheduling loop has a thread of its own.
    pub runtime: Handle,
    /// Pods.
    pub pods: SharedInformer<PodInfo>,
    /// Nodes.
    pub nodes: SharedInformer<NodeView>,
    /// Other objects.
    pub objects: ClusterObjects,
    /// Pods that wait for a node.
    pub queue: SchedulingQueue,
    /// Nodes with their pods.
    pub cache: Mutex<SchedulerCache>,
    /// The pods of each pod group.
    pub pod_groups: Arc<PodGroupStates>,
    /// Pods that wait for permission.
    pub waiting_pods: WaitingPods,
    /// Pods that work is done for before they are bound.
    pub pre_bind_pods: PreBindPods,
    /// Webhooks.
    pub extenders: Extenders,
    /// Features that are on.
    pub features: SchedulerFeatures,
    recorders: OnceLock<HashMap<Arc<str>, EventSeriesRecorder>>,
}

impl SchedulerHandle {
    /// Puts the parts together.
    pub fn new(
        client: Client,
        (pods, nodes, objects): (SharedInformer<PodInfo>, SharedInformer<NodeView>, ClusterObjects),
        queue: SchedulingQueue,
        extenders: Extenders,
        features: SchedulerFeatures,
    ) -> Self {
        let cache = SchedulerCache::default();
        Self {
            client,
            runtime: Handle::current(),
            pods,
            nodes,
            objects,
            queue,
            pod_groups: cache.pod_groups().clone(),
            cache: Mutex::new(cache),
            waiting_pods: WaitingPods::default(),
            pre_bind_pods: PreBindPods::default(),
            extenders,
            features,
            recorders: OnceLock::new(),
        }
    }

    /// Sets the event recorders of the profiles, once.
    pub fn set_recorders(&self, recorders: HashMap<Arc<str>, EventSeriesRecorder>) {
        // A second call would be a bug; the first one counts.
        let _ = self.recorders.set(recorders);
    }

    /// The event recorder of a profile.
    pub fn recorder_of(&self, profile: &str) -> Option<&EventSeriesRecorder> {
        self.recorders.get()?.get(profile)
    }

    /// Locks the cache.
    pub fn lock_cache(&self) -> MutexGuard<'_, SchedulerCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
