//! The devices that are allocated to claims, kept up to date by claim.

use std::collections::HashMap;

use api::quantity::Quantity;
use k8s_openapi::api::resource::v1::AllocationResult;

use super::{
    capacity::Capacities,
    device_pools::{DeviceId, PoolId},
};

/// The allocations of a device to claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceUse {
    /// Number of claims that have the device for themselves.
    pub dedicated: usize,
    /// Number of shares.
    pub shares: usize,
    /// The capacity that the shares take.
    pub consumed: Capacities,
}

/// Devices of a pool by name, with what claims have of them.
pub type PoolUse = HashMap<String, DeviceUse>;

/// Devices with what claims have of them. An allocation with admin access takes nothing.
#[derive(Clone, Debug, Default)]
pub struct AllocatedState {
    pools: HashMap<PoolId, PoolUse>,
}

impl AllocatedState {
    /// Returns the devices of a pool that claims have something of.
    pub fn pool(&self, id: &PoolId) -> Option<&PoolUse> {
        self.pools.get(id)
    }

    /// Whether any claim has a part of the device.
    pub fn is_allocated(&self, id: &DeviceId) -> bool {
        self.pool(&id.pool).is_some_and(|devices| devices.contains_key(&id.device))
    }

    /// Accounts for an allocation.
    pub fn add(&mut self, allocation: &AllocationResult) {
        self.change(allocation, true);
    }

    /// Accounts for an allocation that ended.
    pub fn remove(&mut self, allocation: &AllocationResult) {
        self.change(allocation, false);
    }

    fn change(&mut self, allocation: &AllocationResult, is_added: bool) {
        let step = |count: &mut usize| *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        for result in allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten()) {
            if result.admin_access == Some(true) {
                continue;
            }
            let pool = PoolId { driver: result.driver.clone(), pool: result.pool.clone() };
            let devices = self.pools.entry(pool).or_default();
            let used = devices.entry(result.device.clone()).or_default();
            match result.share_id {
                None => step(&mut used.dedicated),
                Some(_) => {
                    step(&mut used.shares);
                    for (name, amount) in result.consumed_capacity.iter().flatten() {
                        let amount = Quantity::parse(&amount.0).unwrap_or(Quantity::ZERO);
                        let total = used.consumed.entry(name.clone()).or_insert(Quantity::ZERO);
                        *total = if is_added { total.plus(amount) } else { total.minus(amount) };
                    }
                }
            }
            if used.dedicated == 0 && used.shares == 0 {
                devices.remove(&result.device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_and_dedicated_devices_are_counted() {
        let results = json!([{"request": "r", "driver": "d", "pool": "p", "device": "whole"},
            {"request": "r", "driver": "d", "pool": "p", "device": "part", "shareID": "1", "consumedCapacity": {"memory": "2Gi"}},
            {"request": "r", "driver": "d", "pool": "p", "device": "watched", "adminAccess": true}]);
        let allocation: AllocationResult = serde_json::from_value(json!({"devices": {"results": results}})).unwrap();
        let pool = PoolId { driver: "d".into(), pool: "p".into() };
        let id = |device: &str| DeviceId { pool: pool.clone(), device: device.into() };
        let mut state = AllocatedState::default();
        state.add(&allocation);
        state.add(&allocation);
        let used = state.pool(&pool).unwrap();
        assert_eq!((used["whole"].dedicated, used["part"].dedicated, used["part"].shares), (2, 0, 2));
        assert_eq!(used["part"].consumed["memory"], Quantity::parse("4Gi").unwrap());
        assert!(!state.is_allocated(&id("watched")));
        state.remove(&allocation);
        state.remove(&allocation);
        assert!(!state.is_allocated(&id("whole")) && !state.is_allocated(&id("part")));
    }
}
