//! The devices that a node can use, from ResourceSlices.

use std::{collections::BTreeMap, sync::Arc};

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::NodeSelector as ApiNodeSelector,
    resource::v1::{Device, ResourceSlice},
};

use crate::{views::node_info::NodeView, views::node_selector::NodeSelector};

/// Driver, pool and name of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The device.
    pub device: String,
}

/// A device that a node can use.
pub struct NodeDevice {
    /// Its identity.
    pub id: DeviceId,
    slice: Arc<ResourceSlice>,
    index: usize,
    /// Which nodes can use it: this one only, those that are selected, or all.
    pub access: DeviceAccess,
}

/// The nodes that can use a device.
#[derive(Clone, Debug)]
pub enum DeviceAccess {
    /// The node of the search.
    Node,
    /// Nodes by selector.
    Selected(ApiNodeSelector),
    /// All nodes.
    All,
}

impl NodeDevice {
    /// The device as its driver published it.
    pub fn device(&self) -> Option<&Device> {
        self.slice.spec.devices.as_ref()?.get(self.index)
    }
}

/// The devices of a node.
#[derive(Default)]
pub struct NodeDevices {
    /// Devices of complete pools; those without binding conditions first, then by driver, pool and slice.
    pub devices: Vec<NodeDevice>,
    /// Whether a pool is incomplete, because its driver is publishing.
    pub has_incomplete: bool,
    /// Shared counters by driver, pool, set and counter.
    pub counters: BTreeMap<(String, String, String, String), Quantity>,
}

impl NodeDevices {
    /// Collects the devices that a node can use.
    pub fn for_node(slices: &[Arc<ResourceSlice>], node: &NodeView) -> Self {
        let mut pools: BTreeMap<(&str, &str), Vec<&Arc<ResourceSlice>>> = BTreeMap::new();
        for slice in slices {
            pools.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default().push(slice);
        }
        let mut found = Self::default();
        for ((driver, pool), mut slices) in pools {
            let newest = slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0);
            slices.retain(|slice| slice.spec.pool.generation == newest);
            slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            let expected = slices.first().map_or(0, |slice| slice.spec.pool.resource_slice_count);
            let is_complete = i64::try_from(slices.len()) == Ok(expected);
            let devices: Vec<NodeDevice> =
                slices.iter().flat_map(|slice| slice_devices(slice, node, driver, pool)).collect();
            match is_complete {
                true => found.devices.extend(devices),
                false => found.has_incomplete |= !devices.is_empty(),
            }
            for set in slices.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten()) {
                for (counter, value) in &set.counters {
                    if let Some(quantity) = Quantity::parse(&value.value.0) {
                        let key = (driver.to_owned(), pool.to_owned(), set.name.clone(), counter.clone());
                        found.counters.insert(key, quantity);
                    }
                }
            }
        }
        let has_conditions = |device: &NodeDevice| {
            let conditions = device.device().and_then(|device| device.binding_conditions.as_ref());
            conditions.is_some_and(|conditions| !conditions.is_empty())
        };
        // Stable: the order by driver and pool stays.
        found.devices.sort_by_key(has_conditions);
        found
    }
}

fn slice_devices(slice: &Arc<ResourceSlice>, node: &NodeView, driver: &str, pool: &str) -> Vec<NodeDevice> {
    let spec = &slice.spec;
    let by_device = spec.per_device_node_selection == Some(true);
    let of_slice = access(spec.node_name.as_ref(), spec.all_nodes, spec.node_selector.as_ref(), node);
    let devices = spec.devices.iter().flatten().enumerate();
    let usable = devices.filter_map(|(index, device)| {
        let access = match by_device {
            true => access(device.node_name.as_ref(), device.all_nodes, device.node_selector.as_ref(), node),
            false => of_slice.clone(),
        }?;
        let id = DeviceId { driver: driver.into(), pool: pool.into(), device: device.name.clone() };
        Some(NodeDevice { id, slice: slice.clone(), index, access })
    });
    usable.collect()
}

fn access(
    name: Option<&String>,
    all: Option<bool>,
    selector: Option<&ApiNodeSelector>,
    node: &NodeView,
) -> Option<DeviceAccess> {
    match (name.filter(|name| !name.is_empty()), all, selector) {
        (Some(name), ..) => (**name == *node.name).then_some(DeviceAccess::Node),
        (None, Some(true), _) => Some(DeviceAccess::All),
        (None, _, Some(selector)) => {
            let matches = NodeSelector::from_selector(selector).matches(&node.name, &node.labels);
            matches.then(|| DeviceAccess::Selected(selector.clone()))
        }
        _ => None,
    }
}
