//! Monitors: one metadata watch per resource that feeds the graph.

use std::{collections::HashSet, pin::pin, sync::Arc};

use futures::StreamExt;
use kube::{
    Api,
    discovery::verbs,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;

use super::{GarbageCollector, graph::ObjectUid, owned_object::OwnedObject};
use crate::discovery::DiscoveredResource;

/// Resources that never own objects and are too numerous to watch.
const IGNORED_RESOURCES: [(&str, &str); 2] = [("", "Event"), ("events.k8s.io", "Event")];

/// Whether the collector monitors the resource.
pub(super) fn is_monitored(kind: &DiscoveredResource) -> bool {
    let name = (kind.resource.group.as_str(), kind.resource.kind.as_str());
    !IGNORED_RESOURCES.contains(&name) && kind.supports_verbs(&[verbs::LIST, verbs::WATCH, verbs::DELETE])
}

/// Watches one resource. `synced` becomes true after the first complete list.
pub(super) async fn run_monitor(
    collector: Arc<GarbageCollector>,
    kind: usize,
    description: DiscoveredResource,
    synced: watch::Sender<bool>,
) {
    let api: Api<OwnedObject> = Api::all_with(collector.client.clone(), &description.resource);
    let mut events = pin!(watcher(api, watcher::Config::default().streaming_lists()).default_backoff());
    let mut listed = HashSet::new();
    let name: Arc<str> = description.resource.kind.as_str().into();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.extend(object.metadata.uid.as_deref().map(ObjectUid::from));
                collector.enqueue_all(collector.lock_graph().upsert_object(kind, &name, &object.metadata));
            }
            Ok(watcher::Event::InitDone) => {
                let gone = collector.lock_graph().retain_listed(kind, &std::mem::take(&mut listed));
                collector.enqueue_all(gone);
                synced.send_replace(true);
            }
            Ok(watcher::Event::Apply(object)) => {
                collector.enqueue_all(collector.lock_graph().upsert_object(kind, &name, &object.metadata));
                collector.notify_if_api_changed(&description);
            }
            Ok(watcher::Event::Delete(object)) => {
                collector
                    .enqueue_all(collector.lock_graph().remove_object(object.metadata.uid.as_deref().unwrap_or("")));
                collector.notify_if_api_changed(&description);
            }
            Err(error) => {
                tracing::debug!(kind = description.group_resource(), %error, "garbage collector: watch failed, retrying")
            }
        }
    }
}
