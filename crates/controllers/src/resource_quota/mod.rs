//! resourcequota-controller: recalculates quota usage when a quota changes or a counted object is deleted. The API
//! server charges creations itself.
//!
//! Usage is written only if the quota was not charged since the calculation began. A quota that was charged a moment ago
//! is calculated later, when the creation is stored.

mod monitor;
mod usage;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::monitor::QuotaMonitor;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_view::PodView,
};

/// Time between charging a creation and storing it.
const CHARGE_SETTLE_TIME: Duration = Duration::from_millis(300);
/// Index of quotas by namespace.
const BY_NAMESPACE: &str = "namespace";

struct ResourceQuotaController {
    client: Client,
    quotas: SharedInformer<ResourceQuota>,
    pods: SharedInformer<PodView>,
    queue: WorkQueue<ObjectKey>,
    monitor: QuotaMonitor,
    /// Full recalculation interval; corrects creations that failed after being charged.
    resync_period: Duration,
    /// Times at which quotas were last charged.
    charged: Mutex<HashMap<ObjectKey, Instant>>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |queue| ResourceQuotaController {
        quotas: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        monitor: QuotaMonitor::new(context.client.clone()),
        client: context.client.clone(),
        resync_period: context.options.resource_quota_sync_period,
        charged: Mutex::default(),
        queue,
    };
    run_controller(&context, build).await;
}

impl Controller for ResourceQuotaController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        let namespace = |quota: &ResourceQuota| quota.metadata.namespace.clone().into_iter().collect();
        self.quotas.add_index(BY_NAMESPACE, namespace);
        watches.add(&self.quotas, |this, event, queue| {
            let is_charge =
                matches!(event, ResourceEvent::Updated { old, new } if old.spec == new.spec && is_status_current(new));
            let key = ObjectKey::from_object(event.object().as_ref());
            match event {
                ResourceEvent::Deleted(_) => drop(this.lock_charged().remove(&key)),
                _ if is_charge => drop(this.lock_charged().insert(key.clone(), Instant::now())),
                _ => {}
            }
            if !is_charge {
                queue.add(key);
            }
        });
        watches.add(&self.pods, |this, event, queue| {
            let frees_quota = match event {
                ResourceEvent::Added(_) => false,
                ResourceEvent::Updated { old, new } => is_pod_terminal(new) && !is_pod_terminal(old),
                ResourceEvent::Deleted(_) => true,
            };
            if frees_quota {
                let namespace = event.object().metadata.namespace.as_deref().unwrap_or_default();
                enqueue_namespace(&this.quotas, queue, namespace);
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        self.sync_resource_quota(key).await
    }

    fn stop(&self) {
        self.monitor.stop_all();
    }
}

/// Queues the quotas of a namespace.
fn enqueue_namespace(quotas: &SharedInformer<ResourceQuota>, queue: &WorkQueue<ObjectKey>, namespace: &str) {
    for quota in quotas.by_index(BY_NAMESPACE, namespace) {
        queue.add(ObjectKey::from_object(quota.as_ref()));
    }
}

impl ResourceQuotaController {
    /// Returns the time until a charged creation is stored and counted; `None` if none was charged lately.
    fn settle_time_left(&self, key: &ObjectKey) -> Option<Duration> {
        let charged_at = *self.lock_charged().get(key)?;
        time_left(charged_at, Instant::now())
    }

    fn lock_charged(&self) -> MutexGuard<'_, HashMap<ObjectKey, Instant>> {
        self.charged.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn sync_resource_quota(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
        // The service account may list quotas but not get one; a stale cache shows as a conflict when the status is
        // written.
        let Some(mut quota) = self.quotas.get(&key.namespace, &key.name).map(Arc::unwrap_or_clone) else {
            self.monitor
                .retain_namespace(&key.namespace, !self.quotas.by_index(BY_NAMESPACE, &key.namespace).is_empty());
            return Ok(RequeueAction::AwaitChange);
        };
        if let Some(rest) = self.settle_time_left(key) {
            return Ok(RequeueAction::After(rest));
        }
        let value = json!(quota);
        let kinds = self.monitor.resources_for_quota(&value).await?;
        for kind in &kinds {
            let (quotas, queue) = (self.quotas.clone(), self.queue.clone());
            self.monitor.start_monitor(&key.namespace, kind, move |namespace| {
                enqueue_namespace(&quotas, &queue, namespace);
            });
        }
        let used = usage::calculate_usage(&self.client, &value, &kinds).await?;
        let status = json!({"hard": value["spec"]["hard"], "used": used});
        if is_same_status(&value["status"], &status) {
            return Ok(RequeueAction::After(self.resync_period));
        }
        quota.status = serde_json::from_value(status).ok();
        match api.replace_status(&key.name, &PostParams::default(), &quota).await {
            Ok(_) => Ok(RequeueAction::After(self.resync_period)),
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            // A creation was charged during the calculation.
            Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) => Err(error),
        }
    }
}

fn time_left(charged_at: Instant, now: Instant) -> Option<Duration> {
    CHARGE_SETTLE_TIME.checked_sub(now.saturating_duration_since(charged_at)).filter(|left| !left.is_zero())
}

/// Whether the status covers the current spec.
fn is_status_current(quota: &ResourceQuota) -> bool {
    let hard = |list: Option<_>| list.unwrap_or_default();
    let status = quota.status.clone().unwrap_or_default();
    let limits = hard(quota.spec.as_ref().and_then(|spec| spec.hard.clone()));
    let used = hard(status.used);
    hard(status.hard) == limits && limits.keys().all(|name| used.contains_key(name))
}

fn is_same_status(before: &Value, after: &Value) -> bool {
    ["hard", "used"]
        .iter()
        .all(|field| usage::canonical_quantities(&before[*field]) == usage::canonical_quantities(&after[*field]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_recently_charged_quotas_wait() {
        let charged_at = Instant::now();
        assert_eq!(time_left(charged_at, charged_at + Duration::from_millis(100)), Some(Duration::from_millis(200)));
        assert_eq!(time_left(charged_at, charged_at + CHARGE_SETTLE_TIME), None);
    }
}
