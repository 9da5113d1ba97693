//! Binding conditions: what must be true of allocated devices before the pod is bound.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim},
    apimachinery::pkg::apis::meta::v1::Condition,
};

use super::claim_tracker::allocation;

/// Why the devices of a claim will not get ready.
#[derive(Debug, thiserror::Error)]
pub enum BindingConditionsError {
    /// A driver gave up.
    #[error("device binding failed: claim={claim}, reason={reason}, message={message:?}")]
    Failed {
        /// The claim's name.
        claim: String,
        /// The reason of the condition.
        reason: String,
        /// The message of the condition.
        message: String,
    },
    /// It took too long since the allocation.
    #[error("device binding timeout: claim={0}")]
    ClaimTimeout(String),
    /// It took too long since the wait began.
    #[error("device binding timeout: context deadline exceeded")]
    WaitTimeout,
    /// The claim is gone.
    #[error("could not find v1.ResourceClaim {0:?}")]
    Gone(String),
}

fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation(claim)
        .into_iter()
        .flat_map(|allocation| &allocation.devices)
        .flat_map(|devices| devices.results.iter().flatten())
}

fn conditions_of(result: &DeviceRequestAllocationResult) -> &[String] {
    result.binding_conditions.as_deref().unwrap_or(&[])
}

/// Whether a claim has devices with binding conditions.
pub fn has_binding_conditions(claim: &ResourceClaim) -> bool {
    results(claim).any(|result| !conditions_of(result).is_empty())
}

/// Whether all devices of an allocated claim are ready, by the conditions that drivers set.
pub fn is_ready_for_binding(claim: &ResourceClaim) -> Result<bool, BindingConditionsError> {
    if allocation(claim).is_none() {
        return Ok(false);
    }
    for result in results(claim).filter(|result| !conditions_of(result).is_empty()) {
        let Some(status) = device_status(claim, result) else { return Ok(false) };
        let is_true = |name: &&String| find_condition(status, name).is_some_and(|condition| condition.status == "True");
        let failures = result.binding_failure_conditions.iter().flatten();
        if let Some(failed) = failures.into_iter().find(is_true).and_then(|name| find_condition(status, name)) {
            return Err(BindingConditionsError::Failed {
                claim: claim.metadata.name.clone().unwrap_or_default(),
                reason: failed.reason.clone(),
                message: failed.message.clone(),
            });
        }
        if !conditions_of(result).iter().all(|name| is_true(&name)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the devices of a claim have conditions, and were allocated longer than `timeout` ago.
pub fn has_binding_timed_out(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    let allocated = allocation(claim).and_then(|allocation| allocation.allocation_timestamp.as_ref());
    let Some(allocated) = allocated else { return false };
    results(claim).any(|result| result.binding_conditions.is_some())
        && now.duration_since(allocated.0) > timeout.try_into().unwrap_or(jiff::SignedDuration::MAX)
}

fn device_status<'a>(
    claim: &'a ResourceClaim,
    result: &DeviceRequestAllocationResult,
) -> Option<&'a AllocatedDeviceStatus> {
    let mut devices = claim.status.as_ref()?.devices.as_ref()?.iter();
    devices
        .find(|status| (&status.driver, &status.pool, &status.device) == (&result.driver, &result.pool, &result.device))
}

fn find_condition<'a>(status: &'a AllocatedDeviceStatus, name: &str) -> Option<&'a Condition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(conditions: Value) -> ResourceClaim {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "x",
            "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]});
        let allocation = json!({"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}});
        let devices = json!([{"driver": "d", "pool": "p", "device": "x", "conditions": conditions}]);
        let claim =
            json!({"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": allocation, "devices": devices}});
        serde_json::from_value(claim).unwrap()
    }

    fn condition(name: &str, status: &str) -> Value {
        json!({"type": name, "status": status, "reason": "Why", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn claims_are_ready_once_all_conditions_are_true() {
        let check = |conditions: Value, expected: Result<bool, &str>| {
            let ready = is_ready_for_binding(&claim(conditions)).map_err(|error| error.to_string());
            assert_eq!(ready, expected.map_err(str::to_owned));
        };
        check(json!([]), Ok(false));
        check(json!([condition("Ready", "False")]), Ok(false));
        check(json!([condition("Ready", "True")]), Ok(true));
        let failed = "device binding failed: claim=c, reason=Why, message=\"m\"";
        check(json!([condition("Ready", "True"), condition("Broken", "True")]), Err(failed));
    }

    #[test]
    fn the_timeout_counts_from_the_allocation() {
        let at = |time: &str| has_binding_timed_out(&claim(json!([])), Duration::from_secs(600), time.parse().unwrap());
        assert!(!at("2026-01-01T00:10:00Z") && at("2026-01-01T00:10:01Z"));
    }
}
