//! resourcepoolstatusrequest-controller: answers ResourcePoolStatusRequests with the devices of a driver's pools, and
//! deletes old requests, where the API server has them.

mod pool_status;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::{
    v1::{ResourceClaim, ResourceSlice},
    v1alpha3::ResourcePoolStatusRequest,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};

use self::pool_status::calculate_status;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    device_pools::{CLAIMS_BY_POOL, allocated_devices, index_claims_by_pool, pool_key},
    discovery::check_served,
};

/// Index of ResourceSlices by driver.
const SLICES_BY_DRIVER: &str = "driver";
/// Failed syncs after which a request is left alone.
const MAX_RETRIES: u32 = 5;
/// Time between deletions of old requests.
const CLEANUP_PERIOD: Duration = Duration::from_secs(10 * 60);
/// Age at which an answered request is deleted.
const COMPLETED_TTL: SignedDuration = SignedDuration::from_hours(1);
/// Age at which a request without an answer is deleted.
const PENDING_TTL: SignedDuration = SignedDuration::from_hours(24);

struct ResourcePoolStatusRequestController {
    client: Client,
    requests: SharedInformer<ResourcePoolStatusRequest>,
    slices: SharedInformer<ResourceSlice>,
    claims: SharedInformer<ResourceClaim>,
    /// Number of failed syncs by request.
    failures: Mutex<HashMap<String, u32>>,
}

/// A request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolStatusError {
    #[error("incomplete pools detected, requeueing")]
    IncompletePools,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let served = check_served::<ResourcePoolStatusRequest>(context.informers.client());
    if context.shutdown.run_until_cancelled(served).await != Some(true) {
        return;
    }
    let build = |_| ResourcePoolStatusRequestController {
        requests: context.informers.informer_for(),
        slices: context.informers.informer_for(),
        claims: context.informers.informer_for(),
        client: context.client.clone(),
        failures: Mutex::default(),
    };
    run_controller(&context, build).await;
}

impl Controller for ResourcePoolStatusRequestController {
    type Key = String;
    type Error = PoolStatusError;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.slices.add_index(SLICES_BY_DRIVER, |slice| vec![slice.spec.driver.clone()]);
        index_claims_by_pool(&self.claims);
        watches.add(&self.requests, |_, event, queue| {
            if !matches!(event, ResourceEvent::Deleted(_)) && event.object().status.is_none() {
                queue.add(event.object().name_any());
            }
        });
        watches.require_cache(&self.slices);
        watches.require_cache(&self.claims);
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, PoolStatusError> {
        let answered = self.answer_request(name).await;
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match answered {
            Ok(()) => {
                failures.remove(name);
            }
            Err(error) => {
                let count = failures.entry(name.clone()).or_default();
                *count += 1;
                if *count <= MAX_RETRIES {
                    return Err(error);
                }
                failures.remove(name);
                tracing::warn!(name, %error, "resource pool status request: not answered, giving up");
            }
        }
        Ok(RequeueAction::AwaitChange)
    }

    async fn run_in_background(self: &Arc<Self>) {
        loop {
            self.delete_expired_requests().await;
            tokio::time::sleep(CLEANUP_PERIOD).await;
        }
    }
}

impl ResourcePoolStatusRequestController {
    async fn answer_request(&self, name: &str) -> Result<(), PoolStatusError> {
        let Some(request) = self.requests.get("", name).filter(|request| request.status.is_none()) else {
            return Ok(());
        };
        let slices = self.slices.by_index(SLICES_BY_DRIVER, &request.spec.driver);
        let count_allocated = |pool: &str| self.count_allocated(&request.spec.driver, pool);
        let status = calculate_status(&request.spec, &slices, count_allocated, Timestamp::now());
        // Drivers get time to publish the missing slices.
        if status.pools.iter().flatten().any(|pool| pool.validation_error.is_some()) {
            return Err(PoolStatusError::IncompletePools);
        }
        let mut answered = request.as_ref().clone();
        answered.status = Some(status);
        let api: Api<ResourcePoolStatusRequest> = Api::all(self.client.clone());
        api.replace_status(name, &PostParams::default(), &answered).await?;
        Ok(())
    }

    fn count_allocated(&self, driver: &str, pool: &str) -> usize {
        let claims = self.claims.by_index(CLAIMS_BY_POOL, &pool_key(driver, pool));
        let devices = claims.iter().flat_map(|claim| allocated_devices(claim));
        devices.filter(|device| device.driver == driver && device.pool == pool).count()
    }

    async fn delete_expired_requests(&self) {
        let api: Api<ResourcePoolStatusRequest> = Api::all(self.client.clone());
        let now = Timestamp::now();
        for request in self.requests.list().into_iter().filter(|request| is_expired(request, now)) {
            let (name, uid) = (request.name_any(), request.uid());
            let this_one = Preconditions { uid, ..Default::default() };
            match api.delete(&name, &DeleteParams::default().preconditions(this_one)).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(name, %error, "resource pool status request: expired request not deleted");
                }
                _ => {}
            }
        }
    }
}

/// Whether a request is old: an answered one since its answer, another since its creation.
fn is_expired(request: &ResourcePoolStatusRequest, now: Timestamp) -> bool {
    let created = request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let (since, ttl) = match &request.status {
        None => (created, PENDING_TTL),
        Some(status) => {
            let mut conditions = status.conditions.iter().flatten();
            let ended = conditions.find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"));
            (ended.map(|ended| ended.last_transition_time.0).or(created), COMPLETED_TTL)
        }
    };
    since.is_some_and(|since| now.duration_since(since) > ttl)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn answered_requests_expire_after_an_hour_and_pending_ones_after_a_day() {
        let request = |status: Value| -> ResourcePoolStatusRequest {
            let meta = json!({"name": "r", "creationTimestamp": "1970-01-01T00:00:00Z"});
            serde_json::from_value(json!({"metadata": meta, "spec": {"driver": "d"}, "status": status})).unwrap()
        };
        let at = |hours, seconds| {
            Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours) + SignedDuration::from_secs(seconds)
        };
        let pending = request(json!(null));
        assert!(!is_expired(&pending, at(24, 0)) && is_expired(&pending, at(24, 1)));
        let condition = json!({"type": "Complete", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "1970-01-01T02:00:00Z"});
        let answered = request(json!({"poolCount": 0, "conditions": [condition]}));
        assert!(!is_expired(&answered, at(3, 0)) && is_expired(&answered, at(3, 1)));
        assert!(is_expired(&request(json!({"poolCount": 0})), at(1, 1)));
    }
}
