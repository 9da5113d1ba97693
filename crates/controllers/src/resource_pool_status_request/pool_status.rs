//! The status of a driver's pools, computed from its ResourceSlices and the allocated devices.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::resource::{
        v1::ResourceSlice,
        v1alpha3::{PoolStatus, ResourcePoolStatusRequestSpec, ResourcePoolStatusRequestStatus},
    },
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};

/// Number of pools in a response without `spec.limit`.
const DEFAULT_LIMIT: i32 = 100;
/// Bytes of `validationError`.
const MAX_VALIDATION_ERROR: usize = 256;

/// Computes the response to a request. `slices` are those of the driver; `count_allocated` returns the number of
/// allocated devices of a pool.
pub(super) fn calculate_status(
    spec: &ResourcePoolStatusRequestSpec,
    slices: &[Arc<ResourceSlice>],
    count_allocated: impl Fn(&str) -> usize,
    now: Timestamp,
) -> ResourcePoolStatusRequestStatus {
    let wanted = spec.pool_name.as_deref().filter(|name| !name.is_empty());
    let mut by_pool: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| wanted.is_none_or(|wanted| slice.spec.pool.name == wanted)) {
        by_pool.entry(&slice.spec.pool.name).or_default().push(slice);
    }
    let pool_count = clamp_count(by_pool.len());
    let limit = usize::try_from(spec.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(0);
    let pools = by_pool.iter().take(limit);
    let pools: Vec<_> =
        pools.map(|(name, slices)| pool_status(&spec.driver, name, slices, count_allocated(name))).collect();
    let complete = Condition {
        type_: "Complete".into(),
        status: "True".into(),
        reason: "CalculationComplete".into(),
        message: format!("Calculated status for {} pools", pools.len()),
        last_transition_time: Time(now),
        observed_generation: None,
    };
    ResourcePoolStatusRequestStatus { conditions: Some(vec![complete]), pool_count, pools: Some(pools) }
}

/// Describes a pool by its slices of the highest generation; an incomplete pool has a validation error and no counts.
fn pool_status(driver: &str, pool: &str, slices: &[&ResourceSlice], allocated: usize) -> PoolStatus {
    let generation = slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
    let mut current = slices.iter().filter(|slice| slice.spec.pool.generation == generation);
    let count = current.clone().count();
    let devices: usize = current.clone().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
    let first = current.next();
    let node = first.and_then(|slice| slice.spec.node_name.clone());
    let node = node.filter(|node| !node.is_empty() && current.all(|slice| slice.spec.node_name.as_ref() == Some(node)));
    let expected = first.map_or(0, |slice| slice.spec.pool.resource_slice_count);
    let status =
        PoolStatus { driver: driver.into(), pool_name: pool.into(), generation, node_name: node, ..Default::default() };
    if i64::from(clamp_count(count)) < expected {
        let error = format!(
            "pool {driver}/{pool} is incomplete: observed {count}/{expected} slices at generation {generation}"
        );
        // Names of drivers and pools are ASCII.
        return PoolStatus { validation_error: Some(error.chars().take(MAX_VALIDATION_ERROR).collect()), ..status };
    }
    PoolStatus {
        resource_slice_count: Some(clamp_count(count)),
        total_devices: Some(clamp_count(devices)),
        allocated_devices: Some(clamp_count(allocated)),
        available_devices: Some(clamp_count(devices.saturating_sub(allocated))),
        unavailable_devices: Some(0),
        ..status
    }
}

fn clamp_count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(pool: &str, generation: i64, expected: i64, node: &str, devices: usize) -> Arc<ResourceSlice> {
        let devices: Vec<_> = (0..devices).map(|index| json!({"name": format!("d{index}")})).collect();
        let pool = json!({"name": pool, "generation": generation, "resourceSliceCount": expected});
        let spec = json!({"driver": "d", "pool": pool, "nodeName": node, "devices": devices});
        Arc::new(serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
    }

    fn calculate(slices: &[Arc<ResourceSlice>], limit: Option<i32>) -> ResourcePoolStatusRequestStatus {
        let spec = ResourcePoolStatusRequestSpec { driver: "d".into(), limit, pool_name: None };
        calculate_status(&spec, slices, |pool| usize::from(pool == "a"), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn devices_of_the_newest_generation_are_counted() {
        let slices = [slice("a", 1, 1, "n", 9), slice("a", 2, 2, "n", 3), slice("a", 2, 2, "n", 2)];
        let status = calculate(&slices, None);
        let pool = &status.pools.unwrap()[0];
        assert_eq!((pool.total_devices, pool.allocated_devices, pool.available_devices), (Some(5), Some(1), Some(4)));
        assert_eq!((pool.resource_slice_count, pool.generation, pool.node_name.as_deref()), (Some(2), 2, Some("n")));
        assert_eq!(status.conditions.unwrap()[0].message, "Calculated status for 1 pools");
    }

    #[test]
    fn incomplete_pool_has_an_error_and_no_counts() {
        let pools = calculate(&[slice("a", 1, 2, "n", 1)], None).pools.unwrap();
        let error = "pool d/a is incomplete: observed 1/2 slices at generation 1";
        assert_eq!((pools[0].validation_error.as_deref(), pools[0].total_devices), (Some(error), None));
    }

    #[test]
    fn pools_are_sorted_limited_and_all_counted() {
        let status =
            calculate(&[slice("b", 1, 1, "n", 1), slice("a", 1, 1, "n", 1), slice("c", 1, 1, "n", 1)], Some(2));
        let names: Vec<_> = status.pools.iter().flatten().map(|pool| pool.pool_name.as_str()).collect();
        assert_eq!((names, status.pool_count), (vec!["a", "b"], 3));
    }

    #[test]
    fn pool_of_several_nodes_has_no_node_name() {
        let pools = calculate(&[slice("a", 1, 2, "n", 1), slice("a", 1, 2, "m", 1)], None).pools.unwrap();
        assert_eq!(pools[0].node_name, None);
    }
}
