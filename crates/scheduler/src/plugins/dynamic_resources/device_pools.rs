//! Pools of devices as one node sees them, from ResourceSlices.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::NodeSelector as ApiNodeSelector,
    resource::v1::{Device, ResourceSlice},
};

use crate::{views::node_info::NodeView, views::node_selector::NodeSelector};

/// Driver and name of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
}

impl PoolId {
    fn of_slice(slice: &ResourceSlice) -> Self {
        Self { driver: slice.spec.driver.clone(), pool: slice.spec.pool.name.clone() }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.driver, self.pool)
    }
}

/// The pool and name of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The pool.
    pub pool: PoolId,
    /// The device.
    pub device: String,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.pool, self.device)
    }
}

/// A device of a complete pool.
pub struct NodeDevice {
    /// Its identity.
    pub id: DeviceId,
    /// The position of its pool.
    pub pool: usize,
    /// Whether the node can use it.
    pub is_for_node: bool,
    slice: Arc<ResourceSlice>,
    index: usize,
    /// Results of CEL selectors; a device never changes.
    matches: Mutex<HashMap<String, bool>>,
}

impl NodeDevice {
    fn new(slice: &Arc<ResourceSlice>, index: usize, pool: usize, node: &NodeView) -> Option<Self> {
        let device = slice.spec.devices.as_ref()?.get(index)?;
        let is_for_node = slice.spec.per_device_node_selection != Some(true)
            || is_node_selected(device.node_name.as_ref(), device.all_nodes, device.node_selector.as_ref(), node);
        let id = DeviceId { pool: PoolId::of_slice(slice), device: device.name.clone() };
        Some(Self { id, pool, is_for_node, slice: slice.clone(), index, matches: Mutex::default() })
    }

    /// The device as it was published; `None` never happens.
    pub fn device(&self) -> Option<&Device> {
        self.slice.spec.devices.as_ref()?.get(self.index)
    }

    /// Returns the name and the selector of the nodes that can use the device.
    pub fn node_selection(&self) -> (Option<&String>, Option<&ApiNodeSelector>) {
        let spec = &self.slice.spec;
        match self.device().filter(|_| spec.per_device_node_selection == Some(true)) {
            Some(device) => (device.node_name.as_ref(), device.node_selector.as_ref()),
            None => (spec.node_name.as_ref(), spec.node_selector.as_ref()),
        }
    }

    /// Returns the result of an expression, which `evaluate` computes once.
    pub fn match_expression<E>(
        &self,
        expression: &str,
        evaluate: impl FnOnce(&Device) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut matches = self.matches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = matches.get(expression) {
            return Ok(*known);
        }
        let Some(device) = self.device() else { return Ok(false) };
        let result = evaluate(device)?;
        matches.insert(expression.to_owned(), result);
        Ok(result)
    }
}

/// Whether the devices of a pool can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// They can.
    Complete,
    /// The driver is publishing them.
    Incomplete,
    /// They contradict each other.
    Invalid,
}

/// Counters by set and name.
pub type Counters = BTreeMap<(String, String), Quantity>;

/// A pool.
pub struct DevicePool {
    /// Its identity.
    pub id: PoolId,
    /// Whether its devices can be allocated.
    pub state: PoolState,
    /// The counters that its devices share.
    pub counters: Counters,
    /// Slices with devices of other nodes that share the counters.
    pub other_slices: Vec<Arc<ResourceSlice>>,
}

/// The devices that a node can use.
#[derive(Default)]
pub struct NodeDevices {
    /// The pools: those without binding conditions first, then by name.
    pub pools: Vec<DevicePool>,
    /// The devices of complete pools in the order of the search.
    pub devices: Vec<NodeDevice>,
}

/// The published slices by node, with the pools that were collected from them.
#[derive(Default)]
pub struct SliceIndex {
    on_node: HashMap<String, Vec<Arc<ResourceSlice>>>,
    shared: Vec<Arc<ResourceSlice>>,
    by_pool: HashMap<PoolId, Vec<Arc<ResourceSlice>>>,
    collected: Mutex<HashMap<Arc<str>, CollectedDevices>>,
}

/// The devices of a node, and the labels that they were selected by.
type CollectedDevices = (Arc<NodeView>, Arc<NodeDevices>);

impl SliceIndex {
    /// Sorts slices by node.
    pub fn new(slices: &[Arc<ResourceSlice>]) -> Self {
        let mut index = Self::default();
        for slice in slices {
            index.by_pool.entry(PoolId::of_slice(slice)).or_default().push(slice.clone());
            match slice.spec.node_name.as_ref().filter(|name| !name.is_empty() && !has_counters(slice)) {
                Some(node) => index.on_node.entry(node.clone()).or_default().push(slice.clone()),
                None => index.shared.push(slice.clone()),
            }
        }
        index
    }

    /// Returns the devices that a node can use.
    pub fn devices_for_node(&self, node: &Arc<NodeView>) -> Arc<NodeDevices> {
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((view, devices)) = collected.get(&node.name)
            && (Arc::ptr_eq(view, node) || view.labels == node.labels)
        {
            return devices.clone();
        }
        let devices = Arc::new(self.collect_devices(node));
        collected.insert(node.name.clone(), (node.clone(), devices.clone()));
        devices
    }

    fn collect_devices(&self, node: &NodeView) -> NodeDevices {
        let mut by_pool: BTreeMap<PoolId, Vec<Arc<ResourceSlice>>> = BTreeMap::new();
        let own = self.on_node.get(&*node.name).into_iter().flatten();
        for slice in own.chain(&self.shared).filter(|slice| is_relevant(slice, node)) {
            let slices = by_pool.entry(PoolId::of_slice(slice)).or_default();
            let newest = slices.first().map_or(i64::MIN, |slice| slice.spec.pool.generation);
            match slice.spec.pool.generation.cmp(&newest) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => slices.clear(),
            }
            slices.push(slice.clone());
        }
        let (conditional, plain): (Vec<_>, Vec<_>) =
            by_pool.into_iter().partition(|(_, slices)| slices.iter().any(|slice| has_binding_conditions(slice)));
        let mut found = NodeDevices::default();
        for (id, slices) in plain.into_iter().chain(conditional) {
            self.add_pool(&mut found, id, slices, node);
        }
        found
    }

    fn add_pool(&self, found: &mut NodeDevices, id: PoolId, mut slices: Vec<Arc<ResourceSlice>>, node: &NodeView) {
        let Some(pool) = slices.first().map(|slice| slice.spec.pool.clone()) else { return };
        let is_complete = |count: usize| i64::try_from(count) == Ok(pool.resource_slice_count);
        let mut all = Vec::new();
        let mut state = PoolState::Complete;
        if !is_complete(slices.len()) {
            let known = self.by_pool.get(&id).map_or(&[][..], Vec::as_slice);
            if known.iter().any(|slice| slice.spec.pool.generation > pool.generation) {
                return;
            }
            all = known.iter().filter(|slice| slice.spec.pool.generation == pool.generation).cloned().collect();
            if !is_complete(all.len()) {
                state = PoolState::Incomplete;
            }
        }
        slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let is_own = |slice: &Arc<ResourceSlice>| slices.iter().any(|own| Arc::ptr_eq(own, slice));
        let other_slices: Vec<_> = all.into_iter().filter(|slice| !is_own(slice)).collect();
        let counters = counters_of(&slices);
        let is_consistent = has_unique_names(&slices)
            && counters.as_ref().is_some_and(|counters| {
                slices.iter().chain(&other_slices).all(|slice| consumes_known_counters(slice, counters))
            });
        if state == PoolState::Complete && !is_consistent {
            state = PoolState::Invalid;
        }
        let position = found.pools.len();
        if state == PoolState::Complete {
            let devices = slices.iter().filter(|slice| !has_counters(slice)).flat_map(|slice| {
                let count = slice.spec.devices.as_ref().map_or(0, Vec::len);
                (0..count).filter_map(move |index| NodeDevice::new(slice, index, position, node))
            });
            found.devices.extend(devices);
        }
        found.pools.push(DevicePool { id, state, counters: counters.unwrap_or_default(), other_slices });
    }
}

fn has_counters(slice: &ResourceSlice) -> bool {
    slice.spec.shared_counters.as_ref().is_some_and(|sets| !sets.is_empty())
}

fn devices_of(slice: &ResourceSlice) -> impl Iterator<Item = &Device> {
    slice.spec.devices.iter().flatten()
}

fn has_binding_conditions(slice: &ResourceSlice) -> bool {
    devices_of(slice).any(|device| device.binding_conditions.is_some())
}

/// Whether a slice has devices for the node, or counters for such devices.
fn is_relevant(slice: &ResourceSlice, node: &NodeView) -> bool {
    let spec = &slice.spec;
    let has_name = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
    if has_counters(slice) {
        true
    } else if has_name || spec.all_nodes == Some(true) || spec.node_selector.is_some() {
        is_node_selected(spec.node_name.as_ref(), spec.all_nodes, spec.node_selector.as_ref(), node)
    } else {
        spec.per_device_node_selection == Some(true)
            && devices_of(slice).any(|device| {
                is_node_selected(device.node_name.as_ref(), device.all_nodes, device.node_selector.as_ref(), node)
            })
    }
}

/// Whether a node is selected by its name, as one of all, or by a selector.
pub fn is_node_selected(
    name: Option<&String>,
    all: Option<bool>,
    selector: Option<&ApiNodeSelector>,
    node: &NodeView,
) -> bool {
    match (name.filter(|name| !name.is_empty()), selector) {
        (Some(name), _) => **name == *node.name,
        (None, _) if all == Some(true) => true,
        (None, Some(selector)) => NodeSelector::from_selector(selector).matches(&node.name, &node.labels),
        (None, None) => false,
    }
}

fn has_unique_names(slices: &[Arc<ResourceSlice>]) -> bool {
    let mut names = BTreeSet::new();
    slices.iter().flat_map(|slice| devices_of(slice)).all(|device| names.insert(device.name.as_str()))
}

/// Collects counters; `None` if two sets have the same name.
fn counters_of(slices: &[Arc<ResourceSlice>]) -> Option<Counters> {
    let (mut names, mut counters) = (BTreeSet::new(), Counters::new());
    for set in slices.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten()) {
        if !names.insert(set.name.as_str()) {
            return None;
        }
        for (name, counter) in &set.counters {
            let value = Quantity::parse(&counter.value.0).unwrap_or(Quantity::ZERO);
            counters.insert((set.name.clone(), name.clone()), value);
        }
    }
    Some(counters)
}

fn consumes_known_counters(slice: &ResourceSlice, counters: &Counters) -> bool {
    devices_of(slice).all(|device| consumed_counters(device).all(|(key, _)| counters.contains_key(&key)))
}

/// Returns what a device uses of counters.
pub fn consumed_counters(device: &Device) -> impl Iterator<Item = ((String, String), Quantity)> {
    device.consumes_counters.iter().flatten().flat_map(|consumption| {
        consumption.counters.iter().map(|(name, counter)| {
            let value = Quantity::parse(&counter.value.0).unwrap_or(Quantity::ZERO);
            ((consumption.counter_set.clone(), name.clone()), value)
        })
    })
}

/// Returns the devices of a slice with their identities.
pub fn slice_devices(slice: &ResourceSlice) -> impl Iterator<Item = (DeviceId, &Device)> {
    devices_of(slice).map(|device| (DeviceId { pool: PoolId::of_slice(slice), device: device.name.clone() }, device))
}
