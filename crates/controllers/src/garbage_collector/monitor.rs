//! Watches the metadata of every kind of object and keeps the graph current.

use std::{collections::HashSet, pin::pin, sync::Arc};

use futures::StreamExt;
use kube::{
    Api,
    api::{DynamicObject, PartialObjectMeta},
    discovery::verbs,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;

use super::{Collector, graph::Uid};
use crate::discovery::Kind;

/// Kinds that never own and are too many to watch.
const IGNORED: [(&str, &str); 2] = [("", "Event"), ("events.k8s.io", "Event")];

/// Whether the collector watches a kind.
pub(super) fn is_watched(kind: &Kind) -> bool {
    let name = (kind.resource.group.as_str(), kind.resource.kind.as_str());
    !IGNORED.contains(&name) && kind.supports(&[verbs::LIST, verbs::WATCH, verbs::DELETE])
}

/// Follows one kind for ever. `synced` becomes true after the first complete list.
pub(super) async fn follow(collector: Arc<Collector>, kind: usize, description: Kind, synced: watch::Sender<bool>) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(collector.client.clone(), &description.resource);
    let mut events = pin!(watcher(api, watcher::Config::default().streaming_lists()).default_backoff());
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.extend(object.metadata.uid.as_deref().map(Uid::from));
                collector.wake(collector.graph().apply(kind, &object.metadata));
            }
            Ok(watcher::Event::InitDone) => {
                let gone = collector.graph().retain(kind, &std::mem::take(&mut listed));
                collector.wake(gone);
                synced.send_replace(true);
            }
            Ok(watcher::Event::Apply(object)) => {
                collector.wake(collector.graph().apply(kind, &object.metadata));
                collector.kinds_may_have_changed(&description);
            }
            Ok(watcher::Event::Delete(object)) => {
                collector.wake(collector.graph().remove(object.metadata.uid.as_deref().unwrap_or("")));
                collector.kinds_may_have_changed(&description);
            }
            Err(error) => tracing::debug!(kind = description.name(), %error, "watch failed, trying again"),
        }
    }
}
