//! Pools of devices: the ResourceSlices that publish them and the ResourceClaims that use them.

use client::SharedInformer;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

/// Index of ResourceClaims by the pools of their allocated devices; see [`index_claims_by_pool`].
pub(crate) const CLAIMS_BY_POOL: &str = "allocatedPool";

/// The value of a pool in indexes.
pub(crate) fn pool_key(driver: &str, pool: &str) -> String {
    format!("{driver}/{pool}")
}

/// Adds the index of claims by the pools of their allocated devices.
pub(crate) fn index_claims_by_pool(claims: &SharedInformer<ResourceClaim>) {
    claims.add_index(CLAIMS_BY_POOL, |claim| {
        let mut pools: Vec<_> = allocated_devices(claim).map(|device| pool_key(&device.driver, &device.pool)).collect();
        pools.sort();
        pools.dedup();
        pools
    });
}

/// The devices that are allocated for a claim.
pub(crate) fn allocated_devices(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.into_iter().flat_map(|devices| devices.results.iter().flatten())
}
