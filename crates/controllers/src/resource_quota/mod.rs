//! Resource quotas: how much of what they limit is used, counted again when a quota changes and when something that counts
//! goes away. The API server charges what is created by itself.
//!
//! A count is only written if nothing was charged while it was made, and for a moment before: what is charged is stored
//! right after, so that nothing is missed.

mod count;
mod follow;

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, Change, Informer, Queue, Requeue};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use self::follow::Followers;
use crate::{Context, availability::is_terminal, key::Key};

/// How long a creation may take from being charged to being stored.
const SETTLE: Duration = Duration::from_millis(300);
/// How often quotas are counted without a reason: creations that failed after they were charged.
const RESYNC: Duration = Duration::from_secs(300);
/// Quotas by their namespace.
const BY_NAMESPACE: &str = "namespace";

struct Controller {
    client: Client,
    quotas: Informer<ResourceQuota>,
    queue: Queue<Key>,
    followers: Followers,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller {
        quotas: context.informers.of(),
        queue: Queue::new(),
        followers: Followers::new(context.client.clone()),
        client: context.client,
    });
    controller.watch(&context.informers.of());
    controller.quotas.synced().await;
    let worker = controller.clone();
    let sync = move |key: Key| {
        let controller = worker.clone();
        async move { controller.sync(&key).await }
    };
    controller.queue.run(5, context.shutdown, sync).await;
    controller.followers.stop();
}

impl Controller {
    fn watch(self: &Arc<Self>, pods: &Informer<Pod>) {
        let of = |quota: &ResourceQuota| quota.metadata.namespace.clone().into_iter().collect();
        self.quotas.add_index(BY_NAMESPACE, of);
        let this = self.clone();
        self.quotas.on_change(move |change| {
            let charged = matches!(change, Change::Updated { old, new } if old.spec == new.spec && is_counted(new));
            if !charged {
                this.queue.add(Key::of(change.object().as_ref()));
            }
        });
        let this = self.clone();
        pods.on_change(move |change| {
            let ended = match change {
                Change::Added(_) => false,
                Change::Updated { old, new } => is_terminal(new) && !is_terminal(old),
                Change::Deleted(_) => true,
            };
            if ended {
                this.recount(change.object().metadata.namespace.as_deref().unwrap_or_default());
            }
        });
    }

    /// Something that may count in a namespace is gone.
    fn recount(&self, namespace: &str) {
        for quota in self.quotas.by_index(BY_NAMESPACE, namespace) {
            self.queue.add(Key::of(quota.as_ref()));
        }
    }

    async fn sync(self: &Arc<Self>, key: &Key) -> Result<Requeue, kube::Error> {
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
        // This loop's account may list quotas, not get one; what the cache lacks is noticed when the status is written.
        let Some(mut quota) = self.quotas.get(&key.namespace, &key.name).map(Arc::unwrap_or_clone) else {
            self.followers.retain(&key.namespace, !self.quotas.by_index(BY_NAMESPACE, &key.namespace).is_empty());
            return Ok(Requeue::No);
        };
        let value = json!(quota);
        let kinds = self.followers.kinds(&value).await?;
        for kind in &kinds {
            let this = self.clone();
            self.followers.follow(&key.namespace, kind, move |namespace| this.recount(namespace));
        }
        tokio::time::sleep(SETTLE).await;
        let used = count::used(&self.client, &value, &kinds).await?;
        let status = json!({"hard": value["spec"]["hard"], "used": used});
        if same(&value["status"], &status) {
            return Ok(Requeue::After(RESYNC));
        }
        quota.status = serde_json::from_value(status).ok();
        match api.replace_status(&key.name, &PostParams::default(), &quota).await {
            Ok(_) => Ok(Requeue::After(RESYNC)),
            Err(error) if error.is_not_found() => Ok(Requeue::No),
            // Somebody was charged meanwhile.
            Err(error) if error.is_conflict() => Ok(Requeue::Retry),
            Err(error) => Err(error),
        }
    }
}

/// Whether a quota's status is of its specification.
fn is_counted(quota: &ResourceQuota) -> bool {
    let hard = |list: Option<_>| list.unwrap_or_default();
    let status = quota.status.clone().unwrap_or_default();
    let limits = hard(quota.spec.as_ref().and_then(|spec| spec.hard.clone()));
    let used = hard(status.used);
    hard(status.hard) == limits && limits.keys().all(|name| used.contains_key(name))
}

fn same(before: &Value, after: &Value) -> bool {
    ["hard", "used"].iter().all(|field| count::amounts(&before[*field]) == count::amounts(&after[*field]))
}
