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

use client::WorkQueue;
use kube::Client;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
};

use self::graph::{DependencyGraph, ObjectUid};
use crate::{
    ControllerContext,
    discovery::{self, DiscoveredResource},
};

const WORKERS: usize = 10;
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
    queue: WorkQueue<ObjectUid>,
    rediscover: Notify,
}

/// Running monitors by resource index, with their sync state.
type ResourceMonitors = HashMap<usize, (AbortHandle, watch::Receiver<bool>)>;

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let collector = Arc::new(GarbageCollector {
        client: context.client,
        graph: Mutex::default(),
        resources: Mutex::default(),
        queue: WorkQueue::new(),
        rediscover: Notify::new(),
    });
    let mut monitors = ResourceMonitors::new();
    let ready = async {
        collector.sync_monitors(&mut monitors).await;
        wait_for_first_lists(&monitors).await;
    };
    if context.shutdown.run_until_cancelled(ready).await.is_none() {
        return;
    }
    let worker = collector.clone();
    let sync = move |uid: ObjectUid| {
        let collector = worker.clone();
        async move { collector.sync_object(&uid).await }
    };
    let watching = context.shutdown.run_until_cancelled(collector.watch_resources(&mut monitors));
    tokio::join!(watching, collector.queue.run_workers(WORKERS, context.shutdown.clone(), sync));
    monitors.values().for_each(|(task, _)| task.abort());
}

/// Waits until every monitor has listed its resource, or for [`FIRST_LIST_TIMEOUT`].
async fn wait_for_first_lists(monitors: &ResourceMonitors) {
    let lists = monitors.values().map(|(_, synced)| {
        let mut synced = synced.clone();
        async move { synced.wait_for(|synced| *synced).await.map(drop) }
    });
    if tokio::time::timeout(FIRST_LIST_TIMEOUT, futures::future::join_all(lists)).await.is_err() {
        tracing::warn!("garbage collector: some resources not listed in time, collecting without them");
    }
}

impl GarbageCollector {
    /// Resynchronizes the monitors whenever the served API changes.
    async fn watch_resources(self: &Arc<Self>, monitors: &mut ResourceMonitors) {
        loop {
            self.rediscover.notified().await;
            tokio::time::sleep(REDISCOVERY_DELAY).await;
            self.sync_monitors(monitors).await;
        }
    }

    /// Discovers the served resources and monitors them.
    async fn sync_monitors(self: &Arc<Self>, monitors: &mut ResourceMonitors) {
        let kinds = loop {
            match discovery::discover_resources(&self.client).await {
                Ok(kinds) => break kinds,
                Err(error) => tracing::debug!(%error, "garbage collector: discovery failed, retrying"),
            }
            tokio::time::sleep(REDISCOVERY_DELAY).await;
        };
        self.update_monitors(monitors, kinds.into_iter().filter(monitor::is_monitored).collect());
    }

    fn update_monitors(self: &Arc<Self>, monitors: &mut ResourceMonitors, kinds: Vec<DiscoveredResource>) {
        let wanted: Vec<usize> = kinds.iter().map(|kind| self.resource_index(kind)).collect();
        monitors.retain(|index, (task, _)| {
            let keep = wanted.contains(index);
            if !keep {
                task.abort();
                self.enqueue_all(self.lock_graph().retain_listed(*index, &Default::default()));
            }
            keep
        });
        for (index, kind) in wanted.into_iter().zip(kinds) {
            monitors.entry(index).or_insert_with(|| {
                let (synced, is_synced) = watch::channel(false);
                let task = tokio::spawn(monitor::run_monitor(self.clone(), index, kind, synced));
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

    fn lock_graph(&self) -> MutexGuard<'_, DependencyGraph> {
        self.graph.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_resources(&self) -> MutexGuard<'_, Vec<DiscoveredResource>> {
        self.resources.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
