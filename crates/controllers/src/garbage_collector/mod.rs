//! garbage-collector-controller: deletes objects whose owners are all gone and completes foreground and orphan
//! deletions.
//!
//! It watches the metadata of every resource into a graph. The graph only selects candidates: before a delete, the
//! object and owners unknown to the graph are read from the server.

mod graph;
mod monitor;
mod process_item;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::{RequeueAction, WorkQueue};
use kube::Client;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
};

use self::{
    graph::{DependencyGraph, ObjectUid},
    process_item::CollectError,
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    discovery::{self, DiscoveredResource},
};

/// Time after which collection starts without resources that could not be listed; safe because deletes are verified
/// live.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay between an API change and rediscovery, for the resource to be served.
const REDISCOVERY_DELAY: Duration = Duration::from_secs(1);

struct GarbageCollector {
    client: Client,
    graph: Mutex<DependencyGraph>,
    /// Every resource ever monitored, at the index that its nodes store.
    resources: Mutex<Vec<DiscoveredResource>>,
    monitors: Mutex<ResourceMonitors>,
    queue: WorkQueue<ObjectUid>,
    rediscover: Notify,
}

/// Running monitors by resource index, with their sync state.
type ResourceMonitors = HashMap<usize, (AbortHandle, watch::Receiver<bool>)>;

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |queue| GarbageCollector {
        client: context.client.clone(),
        graph: Mutex::default(),
        resources: Mutex::default(),
        monitors: Mutex::default(),
        queue,
        rediscover: Notify::new(),
    };
    run_controller(&context, build).await;
}

impl Controller for GarbageCollector {
    type Key = ObjectUid;
    type Error = CollectError;
    const WORKERS: usize = 10;

    /// The monitors, not shared informers, feed the queue: they cover every resource of the server.
    fn watch(&self, _: &mut ControllerWatches<Self>) {}

    async fn wait_until_ready(self: &Arc<Self>) {
        self.sync_monitors().await;
        self.wait_for_first_lists().await;
    }

    async fn run_in_background(self: &Arc<Self>) {
        self.watch_resources().await;
    }

    async fn sync(&self, uid: &ObjectUid) -> Result<RequeueAction, CollectError> {
        self.sync_object(uid).await
    }

    fn stop(&self) {
        self.lock_monitors().values().for_each(|(task, _)| task.abort());
    }
}

impl GarbageCollector {
    /// Waits until every monitor has listed its resource, or for [`FIRST_LIST_TIMEOUT`].
    async fn wait_for_first_lists(&self) {
        let synced: Vec<_> = self.lock_monitors().values().map(|(_, synced)| synced.clone()).collect();
        let lists = synced.into_iter().map(async |mut synced| synced.wait_for(|synced| *synced).await.map(drop));
        if tokio::time::timeout(FIRST_LIST_TIMEOUT, futures::future::join_all(lists)).await.is_err() {
            tracing::warn!("garbage collector: some resources not listed in time, collecting without them");
        }
    }

    /// Resynchronizes the monitors whenever the served API changes.
    async fn watch_resources(self: &Arc<Self>) {
        loop {
            self.rediscover.notified().await;
            tokio::time::sleep(REDISCOVERY_DELAY).await;
            self.sync_monitors().await;
        }
    }

    /// Discovers the served resources and monitors them.
    async fn sync_monitors(self: &Arc<Self>) {
        let resources = loop {
            match discovery::discover_resources(&self.client).await {
                Ok(resources) => break resources,
                Err(error) => tracing::debug!(%error, "garbage collector: discovery failed, retrying"),
            }
            tokio::time::sleep(REDISCOVERY_DELAY).await;
        };
        self.update_monitors(resources.into_iter().filter(monitor::is_monitored).collect());
    }

    fn update_monitors(self: &Arc<Self>, resources: Vec<DiscoveredResource>) {
        let desired: Vec<usize> = resources.iter().map(|resource| self.resource_index(resource)).collect();
        let mut monitors = self.lock_monitors();
        monitors.retain(|index, (task, _)| {
            let keep = desired.contains(index);
            if !keep {
                task.abort();
                self.enqueue_all(self.lock_graph().retain_listed(*index, &Default::default()));
            }
            keep
        });
        for (index, resource) in desired.into_iter().zip(resources) {
            monitors.entry(index).or_insert_with(|| {
                let (synced, is_synced) = watch::channel(false);
                let task = tokio::spawn(monitor::run_monitor(self.clone(), index, resource, synced));
                (task.abort_handle(), is_synced)
            });
        }
    }

    fn resource_index(&self, kind: &DiscoveredResource) -> usize {
        let mut kinds = self.lock_resources();
        let same = |known: &DiscoveredResource| {
            known.resource.group == kind.resource.group && known.resource.kind == kind.resource.kind
        };
        kinds.iter().position(same).unwrap_or_else(|| {
            kinds.push(kind.clone());
            kinds.len() - 1
        })
    }

    /// Requests rediscovery when a CustomResourceDefinition or APIService changes.
    fn notify_if_api_changed(&self, kind: &DiscoveredResource) {
        if matches!(kind.resource.kind.as_str(), "CustomResourceDefinition" | "APIService") {
            self.rediscover.notify_one();
        }
    }

    fn enqueue_all(&self, uids: Vec<ObjectUid>) {
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn lock_monitors(&self) -> MutexGuard<'_, ResourceMonitors> {
        self.monitors.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_graph(&self) -> MutexGuard<'_, DependencyGraph> {
        self.graph.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_resources(&self) -> MutexGuard<'_, Vec<DiscoveredResource>> {
        self.resources.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
