//! garbage-collector-controller: deletes objects whose owners are all gone and completes foreground and orphan
//! deletions.
//!
//! It watches the metadata of every resource into a graph. The graph only selects candidates: before a delete, the
//! object and owners unknown to the graph are read from the server.

mod graph;
mod monitor;
mod owned_object;
mod process_item;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::{EventRecorder, RequeueAction, WorkQueue};
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
    discovery::{self, DiscoveredApi, DiscoveredResource},
};

/// Time after which collection starts without resources that could not be listed; safe because deletes are verified
/// live.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay between an API change and rediscovery, for the resource to be served.
const REDISCOVERY_DELAY: Duration = Duration::from_secs(1);

struct GarbageCollector {
    client: Client,
    recorder: EventRecorder,
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
        recorder: EventRecorder::new(context.client.clone(), "garbage-collector-controller", None),
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
        let mut api = loop {
            match discovery::discover_api(&self.client).await {
                Ok(api) => break api,
                Err(error) => tracing::debug!(%error, "garbage collector: discovery failed, retrying"),
            }
            tokio::time::sleep(REDISCOVERY_DELAY).await;
        };
        api.resources.retain(monitor::is_monitored);
        self.update_monitors(api);
    }

    /// Starts and stops monitors. Those of groups that could not be discovered are kept.
    fn update_monitors(self: &Arc<Self>, api: DiscoveredApi) {
        let desired: HashMap<usize, MonitorChange> =
            api.resources.iter().map(|resource| register_resource(&mut self.lock_resources(), resource)).collect();
        let mut monitors = self.lock_monitors();
        monitors.retain(|index, (task, _)| {
            let group = self.lock_resources().get(*index).map(|resource| resource.resource.group.clone());
            let keep = match desired.get(index) {
                Some(change) => *change == MonitorChange::None,
                None => group.is_some_and(|group| api.is_group_failed(&group)),
            };
            if !keep {
                task.abort();
            }
            if !keep && !desired.contains_key(index) {
                self.enqueue_all(self.lock_graph().retain_listed(*index, &Default::default()));
            }
            keep
        });
        for index in desired.into_keys() {
            let Some(resource) = self.lock_resources().get(index).cloned() else { continue };
            monitors.entry(index).or_insert_with(|| {
                let (synced, is_synced) = watch::channel(false);
                let task = tokio::spawn(monitor::run_monitor(self.clone(), index, resource, synced));
                (task.abort_handle(), is_synced)
            });
        }
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

/// Whether the monitor of a resource has to be started again.
#[derive(Debug, PartialEq, Eq)]
enum MonitorChange {
    None,
    /// Another version is served.
    Restart,
}

/// Stores a discovered resource under the index of its group and kind; its version may have changed.
fn register_resource(known: &mut Vec<DiscoveredResource>, found: &DiscoveredResource) -> (usize, MonitorChange) {
    let is_same = |known: &DiscoveredResource| {
        known.resource.group == found.resource.group && known.resource.kind == found.resource.kind
    };
    let Some(index) = known.iter().position(is_same) else {
        known.push(found.clone());
        return (known.len() - 1, MonitorChange::None);
    };
    let is_unchanged = known[index].resource == found.resource;
    known[index] = found.clone();
    (index, if is_unchanged { MonitorChange::None } else { MonitorChange::Restart })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::discovery::tests::{discovered, version};

    #[test]
    fn resource_whose_version_is_no_longer_served_is_monitored_in_the_new_one() {
        let served = |versions| {
            let api = discovered(json!([{"metadata": {"name": "example.com"}, "versions": versions}]));
            api.resources.into_iter().next().unwrap()
        };
        let mut known = Vec::new();
        let old = served(json!([version("v1alpha1", "Current")]));
        assert_eq!(register_resource(&mut known, &old), (0, MonitorChange::None));
        assert_eq!(register_resource(&mut known, &old), (0, MonitorChange::None));
        let new = served(json!([version("v1", "Current")]));
        assert_eq!(register_resource(&mut known, &new), (0, MonitorChange::Restart));
        assert_eq!(known[0].resource.api_version, "example.com/v1");
        assert_eq!(register_resource(&mut known, &new), (0, MonitorChange::None));
    }
}
