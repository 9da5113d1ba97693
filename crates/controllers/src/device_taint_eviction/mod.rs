//! device-taint-eviction-controller: deletes pods that use devices with `NoExecute` taints which their claims do not
//! tolerate, at once or after `tolerationSeconds`.
//!
//! The taints are those of ResourceSlices. DeviceTaintRules are a feature that is off by default and have no effect.

mod eviction_time;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use self::eviction_time::{DeviceLister, has_no_execute_taint, pod_eviction_time};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    device_pools::{CLAIMS_BY_POOL, index_claims_by_pool, pool_key},
    object_key::ObjectKey,
    pod_disruption,
    pod_resource_claims::pod_entries,
    pod_view::PodView,
};

/// Index of ResourceSlices by driver and pool.
const SLICES_BY_POOL: &str = "pool";
const EVENT_REASON: &str = "DeviceTaintManagerEviction";

/// The progress of a pod's eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionState {
    Scheduled,
    Evicted,
}

struct DeviceTaintEvictionController {
    client: Client,
    recorder: EventRecorder,
    devices: DeviceCaches,
    pods: SharedInformer<PodView>,
    /// Pods to evict, and those evicted that still exist, with their uid.
    evictions: Mutex<HashMap<ObjectKey, (String, EvictionState)>>,
}

struct DeviceCaches {
    claims: SharedInformer<ResourceClaim>,
    slices: SharedInformer<ResourceSlice>,
}

impl DeviceLister for DeviceCaches {
    fn pool_slices(&self, driver: &str, pool: &str) -> Vec<Arc<ResourceSlice>> {
        self.slices.by_index(SLICES_BY_POOL, &pool_key(driver, pool))
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        self.claims.get(namespace, name)
    }
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| DeviceTaintEvictionController {
        recorder: EventRecorder::new(context.client.clone(), context.name, None),
        devices: DeviceCaches { claims: context.informers.informer_for(), slices: context.informers.informer_for() },
        pods: context.informers.informer_for(),
        client: context.client.clone(),
        evictions: Mutex::default(),
    };
    run_controller(&context, build).await;
}

impl Controller for DeviceTaintEvictionController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 8;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        let DeviceCaches { claims, slices } = &self.devices;
        slices.add_index(SLICES_BY_POOL, |slice| vec![pool_key(&slice.spec.driver, &slice.spec.pool.name)]);
        index_claims_by_pool(claims);
        watches.add(&self.pods, |_, event, queue| {
            if is_relevant_change(event) {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
        watches.add(claims, |_, event, queue| {
            if let ResourceEvent::Updated { old, .. } = event {
                enqueue_consumers(old, queue);
            }
            enqueue_consumers(event.object(), queue);
        });
        watches.add(slices, Self::handle_slice_event);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else {
            self.lock_evictions().remove(key);
            return Ok(RequeueAction::AwaitChange);
        };
        let Some(when) = pod_eviction_time(&pod, &self.devices) else {
            self.cancel_eviction(key, &pod);
            return Ok(RequeueAction::AwaitChange);
        };
        if !self.schedule_eviction(key, &pod) {
            return Ok(RequeueAction::AwaitChange);
        }
        match Duration::try_from(when.duration_since(Timestamp::now())) {
            Ok(delay) if !delay.is_zero() => Ok(RequeueAction::After(delay)),
            _ => self.evict_pod(key, &pod).await,
        }
    }
}

/// Whether an event may change if and when the pod is evicted. The claims of a pod's spec are immutable.
fn is_relevant_change(event: &ResourceEvent<PodView>) -> bool {
    let observed = |pod: &PodView| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        (node, pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone()))
    };
    let is_same = matches!(event, ResourceEvent::Updated { old, new } if observed(old) == observed(new));
    !is_same && !pod_entries(event.object()).is_empty()
}

/// Adds the pods that a claim is reserved for.
fn enqueue_consumers(claim: &ResourceClaim, queue: &WorkQueue<ObjectKey>) {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let consumers = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let is_pod = |group: Option<&str>, resource: &str| group.unwrap_or_default().is_empty() && resource == "pods";
    consumers
        .filter(|consumer| is_pod(consumer.api_group.as_deref(), &consumer.resource))
        .for_each(|consumer| queue.add(ObjectKey::new(namespace, &consumer.name)));
}

impl DeviceTaintEvictionController {
    /// Adds the pods that use devices of a pool in which there is or was a taint.
    fn handle_slice_event(&self, event: &ResourceEvent<ResourceSlice>, queue: &WorkQueue<ObjectKey>) {
        let slice = event.object();
        let old = match event {
            ResourceEvent::Updated { old, .. } => Some(old),
            ResourceEvent::Added(_) | ResourceEvent::Deleted(_) => None,
        };
        let pool = pool_key(&slice.spec.driver, &slice.spec.pool.name);
        let cached = self.devices.slices.by_index(SLICES_BY_POOL, &pool);
        if cached.iter().chain(old).chain([slice]).any(|slice| has_no_execute_taint(slice)) {
            let claims = self.devices.claims.by_index(CLAIMS_BY_POOL, &pool);
            claims.iter().for_each(|claim| enqueue_consumers(claim, queue));
        }
    }

    /// Remembers that the pod is to be evicted; returns whether that is still to do.
    fn schedule_eviction(&self, key: &ObjectKey, pod: &PodView) -> bool {
        let uid = pod.uid().unwrap_or_default();
        let mut evictions = self.lock_evictions();
        if evictions.get(key).is_some_and(|(evicted, state)| *evicted == uid && *state == EvictionState::Evicted) {
            return false;
        }
        evictions.insert(key.clone(), (uid, EvictionState::Scheduled));
        true
    }

    fn cancel_eviction(&self, key: &ObjectKey, pod: &PodView) {
        let mut evictions = self.lock_evictions();
        let Some((uid, state)) = evictions.get(key).cloned() else { return };
        let is_same = Some(&uid) == pod.metadata.uid.as_ref();
        if !is_same || state == EvictionState::Scheduled {
            evictions.remove(key);
        }
        if is_same && state == EvictionState::Scheduled {
            self.recorder.record_normal(pod.object_ref(&()), EVENT_REASON, "Cancelling deletion");
        }
    }

    async fn evict_pod(&self, key: &ObjectKey, cached: &PodView) -> Result<RequeueAction, kube::Error> {
        match self.delete_pod(key, cached).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let uid = cached.uid().unwrap_or_default();
        self.lock_evictions().insert(key.clone(), (uid, EvictionState::Evicted));
        // The pod may have left the cache, with its entry, while it was deleted.
        if self.pods.get(&key.namespace, &key.name).is_none() {
            self.lock_evictions().remove(key);
        }
        Ok(RequeueAction::AwaitChange)
    }

    /// Sets the condition `DisruptionTarget` and deletes the pod, unless it is gone or being deleted.
    async fn delete_pod(&self, key: &ObjectKey, cached: &PodView) -> Result<(), kube::Error> {
        let api: Api<PodView> = Api::namespaced(self.client.clone(), &key.namespace);
        let pod = api.get(&key.name).await?;
        if pod.metadata.uid != cached.metadata.uid || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.recorder.record_normal(cached.object_ref(&()), EVENT_REASON, "Marking for deletion");
        let (reason, message) =
            ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint");
        if let Some(condition) = pod_disruption::disruption_target(&pod, reason, message, Timestamp::now()) {
            let patch = Patch::Strategic(pod_disruption::status_patch(&pod, json!({"conditions": [condition]})));
            api.patch_status(&key.name, &PatchParams::default(), &patch).await?;
        }
        let this_one = Preconditions { uid: pod.metadata.uid, ..Default::default() };
        api.delete(&key.name, &DeleteParams::default().preconditions(this_one)).await.map(drop)
    }

    fn lock_evictions(&self) -> MutexGuard<'_, HashMap<ObjectKey, (String, EvictionState)>> {
        self.evictions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
