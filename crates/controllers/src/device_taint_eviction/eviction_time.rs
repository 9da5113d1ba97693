//! The time at which a pod loses its claims' tainted devices.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{Device, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice};

use crate::{
    device_pools::allocated_devices,
    pod_resource_claims::{PodClaim, check_owner, pod_entries},
    pod_view::PodView,
};

/// The effect that evicts pods.
const NO_EXECUTE: &str = "NoExecute";

/// The caches that the decision reads.
pub(super) trait DeviceLister {
    /// Returns the slices of a driver's pool, outdated ones included.
    fn pool_slices(&self, driver: &str, pool: &str) -> Vec<Arc<ResourceSlice>>;

    /// Returns a claim.
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>>;
}

/// Returns the time at which a pod is to be evicted because of the taints of its devices.
pub(super) fn pod_eviction_time(pod: &PodView, lister: &impl DeviceLister) -> Option<Timestamp> {
    let is_scheduled = pod.spec.as_ref()?.node_name.as_deref().is_some_and(|node| !node.is_empty());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claims = pod_entries(pod).iter().filter(|_| is_scheduled).filter_map(|entry| {
        let pod_claim = PodClaim::from_pod(pod, entry);
        let claim = lister.claim(namespace, pod_claim.name()?)?;
        let is_own = !matches!(pod_claim, PodClaim::Generated(_)) || check_owner(pod, &claim).is_ok();
        (is_own && is_reserved_for(&claim, pod)).then_some(claim)
    });
    claims.filter_map(|claim| claim_eviction_time(&claim, lister)).min()
}

/// Whether the pod, and no earlier one of its name, may use the claim.
fn is_reserved_for(claim: &ResourceClaim, pod: &PodView) -> bool {
    let mut consumers = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    consumers.any(|consumer| Some(&consumer.uid) == pod.metadata.uid.as_ref())
}

fn claim_eviction_time(claim: &ResourceClaim, lister: &impl DeviceLister) -> Option<Timestamp> {
    let times = allocated_devices(claim).filter_map(|allocated| {
        let slices = lister.pool_slices(&allocated.driver, &allocated.pool);
        let device = current_devices(&slices).find(|device| device.name == allocated.device)?;
        let tolerations = allocated.tolerations.as_deref().unwrap_or_default();
        no_execute_taints(device).filter_map(|taint| taint_eviction_time(taint, tolerations)).min()
    });
    times.min()
}

/// The devices of the slices with the pool's highest generation.
fn current_devices(slices: &[Arc<ResourceSlice>]) -> impl Iterator<Item = &Device> {
    let generation = slices.iter().map(|slice| slice.spec.pool.generation).max();
    let current = slices.iter().filter(move |slice| Some(slice.spec.pool.generation) == generation);
    current.flat_map(|slice| slice.spec.devices.iter().flatten())
}

fn no_execute_taints(device: &Device) -> impl Iterator<Item = &DeviceTaint> {
    device.taints.iter().flatten().filter(|taint| taint.effect == NO_EXECUTE)
}

/// Whether a device of the slice has a taint that evicts pods.
pub(super) fn has_no_execute_taint(slice: &ResourceSlice) -> bool {
    slice.spec.devices.iter().flatten().any(|device| no_execute_taints(device).next().is_some())
}

/// The time at which a taint evicts: when it was added, plus the shortest time of a matching toleration. `None` if it
/// is tolerated for good.
fn taint_eviction_time(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> Option<Timestamp> {
    let mut seconds = None::<i64>;
    for toleration in tolerations.iter().filter(|toleration| tolerates_eviction(toleration, taint)) {
        let tolerated = toleration.toleration_seconds?.max(0);
        seconds = Some(seconds.map_or(tolerated, |other| other.min(tolerated)));
    }
    let added = taint.time_added.as_ref()?.0;
    Some(added.saturating_add(SignedDuration::from_secs(seconds.unwrap_or(0))).unwrap_or(Timestamp::MAX))
}

/// Whether a toleration of the effect `NoExecute` matches a taint; one without an effect does not.
fn tolerates_eviction(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    toleration.effect.as_deref() == Some(NO_EXECUTE)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
            "Exists" => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct FakeLister {
        slices: Vec<Arc<ResourceSlice>>,
        claim: Arc<ResourceClaim>,
    }

    impl DeviceLister for FakeLister {
        fn pool_slices(&self, _: &str, pool: &str) -> Vec<Arc<ResourceSlice>> {
            self.slices.iter().filter(|slice| slice.spec.pool.name == pool).cloned().collect()
        }

        fn claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
            (namespace == "ns" && name == "claim").then(|| self.claim.clone())
        }
    }

    fn slice(generation: i64, taints: Value) -> Arc<ResourceSlice> {
        let pool = json!({"name": "pool", "generation": generation, "resourceSliceCount": 1});
        let devices = json!([{"name": "gpu", "taints": taints}]);
        let spec = json!({"driver": "d", "pool": pool, "devices": devices});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap())
    }

    fn taint(effect: &str) -> Value {
        json!([{"key": "broken", "value": "yes", "effect": effect, "timeAdded": "1970-01-01T00:00:10Z"}])
    }

    fn lister(slices: Vec<Arc<ResourceSlice>>, tolerations: Value) -> FakeLister {
        let result =
            json!({"driver": "d", "pool": "pool", "device": "gpu", "request": "r", "tolerations": tolerations});
        let consumer = json!({"resource": "pods", "name": "p", "uid": "u"});
        let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]});
        let claim = json!({"metadata": {"name": "claim", "namespace": "ns"}, "spec": {}, "status": status});
        FakeLister { slices, claim: Arc::new(serde_json::from_value(claim).unwrap()) }
    }

    fn pod(uid: &str, node: &str) -> PodView {
        let spec = json!({"containers": [], "nodeName": node,
            "resourceClaims": [{"name": "a", "resourceClaimName": "claim"}]});
        let meta = json!({"name": "p", "namespace": "ns", "uid": uid});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn check(slices: Vec<Arc<ResourceSlice>>, tolerations: Value) -> Option<i64> {
        pod_eviction_time(&pod("u", "n"), &lister(slices, tolerations)).map(Timestamp::as_second)
    }

    #[test]
    fn no_execute_taint_evicts_from_the_time_it_was_added() {
        assert_eq!(check(vec![slice(1, taint("NoExecute"))], json!([])), Some(10));
        assert_eq!(check(vec![slice(1, taint("NoSchedule"))], json!([])), None);
        assert_eq!(check(vec![slice(1, json!([]))], json!([])), None);
    }

    #[test]
    fn slices_of_older_generations_are_ignored() {
        assert_eq!(check(vec![slice(1, taint("NoExecute")), slice(2, json!([]))], json!([])), None);
        assert_eq!(check(vec![slice(1, json!([])), slice(2, taint("NoExecute"))], json!([])), Some(10));
    }

    #[test]
    fn shortest_matching_toleration_delays_the_eviction() {
        let with = |tolerations| check(vec![slice(1, taint("NoExecute"))], tolerations);
        let exists =
            |seconds: Value| json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        assert_eq!(with(json!([exists(json!(30)), exists(json!(20))])), Some(30));
        assert_eq!(with(json!([exists(json!(-5))])), Some(10));
        assert_eq!(with(json!([exists(json!(30)), exists(json!(null))])), None);
        assert_eq!(with(json!([{"operator": "Exists"}])), Some(10));
        assert_eq!(with(json!([{"key": "broken", "value": "no", "effect": "NoExecute"}])), Some(10));
        assert_eq!(with(json!([{"key": "broken", "value": "yes", "effect": "NoExecute"}])), None);
    }

    #[test]
    fn only_scheduled_pods_that_hold_the_claim_are_evicted() {
        let lister = lister(vec![slice(1, taint("NoExecute"))], json!([]));
        assert!(pod_eviction_time(&pod("u", "n"), &lister).is_some());
        assert!(pod_eviction_time(&pod("u", ""), &lister).is_none());
        assert!(pod_eviction_time(&pod("other", "n"), &lister).is_none());
    }
}
