//! Waiting for objects by watching them: nothing is polled, so what is measured is the cluster.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, time::Duration};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use tokio::time::{Instant, timeout_at};

/// Time for any expected event.
const PATIENCE: Duration = Duration::from_secs(900);

/// The objects of a selector as a watch tells them, by name.
pub struct ObservedObjects<K> {
    /// Those that are there.
    pub objects: BTreeMap<String, K>,
}

/// Watches a selector from a revision until the condition holds; every change is shown to it.
pub async fn until<K>(
    api: &Api<K>,
    selector: &str,
    revision: &str,
    mut done: impl FnMut(&ObservedObjects<K>, Option<&K>) -> bool,
) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let parameters = WatchParams::default().labels(selector).timeout(290);
    let (deadline, mut revision) = (Instant::now() + PATIENCE, revision.to_owned());
    let mut seen = ObservedObjects { objects: BTreeMap::new() };
    loop {
        let mut events = pin!(api.watch(&parameters, &revision).await?);
        loop {
            let event = timeout_at(deadline, events.next()).await;
            let event = event.with_context(|| format!("{selector} did not come to its end in {PATIENCE:?}"))?;
            let changed = match event.transpose()? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    seen.objects.insert(object.name_any(), object.clone());
                    object
                }
                Some(WatchEvent::Deleted(object)) => {
                    seen.objects.remove(&object.name_any());
                    object
                }
                Some(WatchEvent::Bookmark(mark)) => {
                    revision = mark.metadata.resource_version;
                    continue;
                }
                Some(WatchEvent::Error(status)) => bail!("the watch of {selector} ended: {status:?}"),
                None => break,
            };
            revision = changed.resource_version().unwrap_or(revision);
            if done(&seen, Some(&changed)) {
                return Ok(());
            }
        }
    }
}
