//! Allocates devices of one node for claims: a search that goes back when a choice does not work out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    DeviceFeatures,
    allocated_state::{AllocatedState, DeviceUse, PoolUse},
    allocation_results::{ChosenDevice, NodeChoice},
    capacity::{Capacities, consumed_capacities, has_capacity},
    constraints::{allows_device, is_tolerated},
    device_pools::{
        Counters, DevicePool, NodeDevice, NodeDevices, PoolId, PoolState, SliceIndex, consumed_counters, slice_devices,
    },
    device_requests::{AllocationError, ClaimRequests, DeviceCount, RequestView, claim_key},
    device_selectors::SelectorCache,
};
use crate::views::node_info::NodeView;

/// The greatest number of devices in a claim.
const MAX_RESULTS: usize = 32;

/// State that the allocations of all nodes share.
pub struct AllocatorInput {
    /// The published devices.
    pub slices: Arc<SliceIndex>,
    /// The devices that are allocated.
    pub allocated: Arc<AllocatedState>,
    /// The longest search on a node; zero is unlimited.
    pub timeout: Duration,
    /// Features of devices that are on.
    pub features: DeviceFeatures,
    /// The counters of pools, less those of allocated devices.
    pub free_counters: Mutex<HashMap<PoolId, Arc<Counters>>>,
}

impl AllocatorInput {
    /// Returns what allocated devices leave of the counters of a pool.
    fn free_counters(&self, pool: &DevicePool, devices: &NodeDevices) -> Arc<Counters> {
        let mut known = self.free_counters.lock().unwrap_or_else(PoisonError::into_inner);
        let free = known.entry(pool.id.clone()).or_insert_with(|| {
            let mut free = pool.counters.clone();
            let own = devices.devices.iter().filter(|device| devices.pools[device.pool].id == pool.id);
            let own = own.filter_map(|device| Some((device.id.clone(), device.device()?)));
            let others = pool.other_slices.iter().flat_map(|slice| slice_devices(slice));
            for (_, device) in own.chain(others).filter(|(id, _)| self.allocated.is_allocated(id)) {
                for (key, amount) in consumed_counters(device) {
                    free.entry(key).and_modify(|left| *left = left.minus(amount));
                }
            }
            Arc::new(free)
        });
        free.clone()
    }
}

/// The outcome of a step of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchOutcome {
    /// Everything is allocated.
    Allocated,
    /// It is not possible this way.
    Failed,
    /// It is not possible because the claim would have too many devices.
    TooMany,
}

/// A position in the search: claim, request, choice of the request, and devices chosen for it.
#[derive(Clone, Copy)]
struct SearchPosition {
    claim: usize,
    request: usize,
    choice: usize,
    device: usize,
}

struct Search<'a> {
    input: &'a AllocatorInput,
    selectors: &'a SelectorCache,
    claims: &'a [Arc<ClaimRequests>],
    devices: &'a NodeDevices,
    /// By pool: what earlier allocations have of its devices.
    used: Vec<Option<&'a PoolUse>>,
    /// By claim, request and choice: the devices of requests for all of them.
    all: HashMap<(usize, usize, usize), Vec<usize>>,
    /// By claim and request.
    choices: Vec<Vec<usize>>,
    /// By claim.
    chosen: Vec<Vec<ChosenDevice>>,
    /// Counters that chosen devices use.
    consumed: HashMap<(usize, (String, String)), api::quantity::Quantity>,
    deadline: Option<Instant>,
}

/// Allocates devices of a node for all claims; `None` if that is not possible.
pub fn allocate_devices(
    input: &AllocatorInput,
    selectors: &SelectorCache,
    claims: Vec<Arc<ClaimRequests>>,
    node: &Arc<NodeView>,
) -> Result<Option<NodeChoice>, AllocationError> {
    let devices = input.slices.devices_for_node(node);
    let mut search = Search {
        input,
        selectors,
        claims: &claims,
        devices: &devices,
        used: devices.pools.iter().map(|pool| input.allocated.pool(&pool.id)).collect(),
        all: HashMap::new(),
        choices: claims.iter().map(|claim| vec![0; claim.requests.len()]).collect(),
        chosen: claims.iter().map(|_| Vec::new()).collect(),
        consumed: HashMap::new(),
        deadline: (!input.timeout.is_zero()).then(|| Instant::now() + input.timeout),
    };
    search.prepare()?;
    match search.allocate_claim(0)? {
        SearchOutcome::Allocated => {
            let Search { choices, chosen, .. } = search;
            Ok(Some(NodeChoice { devices, claims, choices, chosen }))
        }
        SearchOutcome::TooMany => Err(AllocationError::Invalid("allocation max size exceeded".into())),
        SearchOutcome::Failed if devices.pools.iter().any(|pool| pool.state == PoolState::Invalid) => {
            Err(AllocationError::Unavailable("invalid resource pools were encountered"))
        }
        SearchOutcome::Failed => Ok(None),
    }
}

impl Search<'_> {
    /// Collects the devices of requests for all of them, and checks the sizes of claims.
    fn prepare(&mut self) -> Result<(), AllocationError> {
        let claims = self.claims;
        for (claim, entry) in claims.iter().enumerate() {
            let mut total = 0usize;
            for (request, choices) in entry.requests.iter().enumerate() {
                let mut least = usize::MAX;
                for (choice, view) in choices.choices.iter().enumerate() {
                    if view.capacity.is_some() && !self.input.features.consumable_capacity {
                        let (key, name) = (claim_key(&entry.claim), view.own_name());
                        return Err(AllocationError::Invalid(format!(
                            "claim {key}, request {name}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
                        )));
                    }
                    let count = match view.count {
                        DeviceCount::Exactly(count) => count,
                        DeviceCount::All => {
                            let all = self.all_devices(entry, view)?;
                            let count = all.len();
                            self.all.insert((claim, request, choice), all);
                            count
                        }
                    };
                    least = least.min(count);
                }
                total = total.saturating_add(least);
            }
            if total > MAX_RESULTS {
                let key = claim_key(&entry.claim);
                return Err(AllocationError::Invalid(format!(
                    "claim {key}: number of requested devices {total} exceeds the claim limit of {MAX_RESULTS}"
                )));
            }
        }
        Ok(())
    }

    fn all_devices(&self, claim: &ClaimRequests, view: &RequestView) -> Result<Vec<usize>, AllocationError> {
        let refuse = |pool: &DevicePool, state: &str| {
            let (claim, request, pool) = (claim_key(&claim.claim), view.own_name(), &pool.id);
            Err(AllocationError::Invalid(format!(
                "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently {state}"
            )))
        };
        for pool in &self.devices.pools {
            match pool.state {
                PoolState::Complete => {}
                PoolState::Incomplete => return refuse(pool, "being updated"),
                PoolState::Invalid => return refuse(pool, "invalid"),
            }
        }
        let mut all = Vec::new();
        for (position, device) in self.devices.devices.iter().enumerate() {
            if self.matches(claim, view, device)? && self.has_capacity(view, position) {
                all.push(position);
            }
        }
        Ok(all)
    }

    /// Allocates a claim and those after it.
    fn allocate_claim(&mut self, claim: usize) -> Result<SearchOutcome, AllocationError> {
        if claim >= self.claims.len() {
            return Ok(SearchOutcome::Allocated);
        }
        self.allocate_request(claim, 0)
    }

    /// Allocates a request and everything after it; of several choices the first that works out.
    fn allocate_request(&mut self, claim: usize, request: usize) -> Result<SearchOutcome, AllocationError> {
        let Some(entry) = self.claims[claim].requests.get(request) else {
            return Ok(match self.allocate_claim(claim + 1)? {
                SearchOutcome::TooMany => SearchOutcome::Failed,
                outcome => outcome,
            });
        };
        let count = entry.choices.len();
        let mut all_too_many = count > 0;
        for choice in 0..count {
            self.choices[claim][request] = choice;
            match self.allocate_one(SearchPosition { claim, request, choice, device: 0 }, 0)? {
                SearchOutcome::Allocated => return Ok(SearchOutcome::Allocated),
                SearchOutcome::TooMany => {}
                SearchOutcome::Failed => all_too_many = false,
            }
        }
        Ok(if all_too_many { SearchOutcome::TooMany } else { SearchOutcome::Failed })
    }

    /// Takes one more device for a choice, from a position on, and goes on.
    fn allocate_one(&mut self, position: SearchPosition, from: usize) -> Result<SearchOutcome, AllocationError> {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(AllocationError::Timeout);
        }
        let SearchPosition { claim, request, choice, device: taken } = position;
        let claims = self.claims;
        let view = &claims[claim].requests[request].choices[choice];
        let count = match view.count {
            DeviceCount::Exactly(count) => count,
            DeviceCount::All => self.all.get(&(claim, request, choice)).map_or(0, Vec::len),
        };
        if count == 0 && view.count == DeviceCount::All {
            return Ok(SearchOutcome::Failed);
        }
        if taken >= count {
            return self.allocate_request(claim, request + 1);
        }
        if self.chosen[claim].len().saturating_add(count - taken) > MAX_RESULTS {
            return Ok(SearchOutcome::TooMany);
        }
        let next = SearchPosition { device: taken + 1, ..position };
        if view.count == DeviceCount::All {
            let Some(device) = self.all.get(&(claim, request, choice)).and_then(|all| all.get(taken)).copied() else {
                return Ok(SearchOutcome::Failed);
            };
            if !self.take(claim, view, device, true)? {
                return Ok(SearchOutcome::Failed);
            }
            let outcome = self.allocate_one(next, 0)?;
            if outcome != SearchOutcome::Allocated {
                self.give_back(claim);
            }
            return Ok(outcome);
        }
        for device in from..self.devices.devices.len() {
            let entry = &self.devices.devices[device];
            if self.is_in_use(claim, view, device)
                || !self.matches(&claims[claim], view, entry)?
                || !self.has_capacity(view, device)
                || !self.take(claim, view, device, false)?
            {
                continue;
            }
            match self.allocate_one(next, device + 1)? {
                SearchOutcome::Allocated => return Ok(SearchOutcome::Allocated),
                outcome => {
                    self.give_back(claim);
                    if outcome == SearchOutcome::TooMany {
                        return Ok(outcome);
                    }
                }
            }
        }
        Ok(SearchOutcome::Failed)
    }

    /// Whether a device is one that the class and the request select.
    fn matches(&self, claim: &ClaimRequests, view: &RequestView, device: &NodeDevice) -> Result<bool, AllocationError> {
        let has_conditions = device.device().is_some_and(|device| device.binding_conditions.is_some());
        if has_conditions && !self.input.features.binding_conditions {
            return Ok(false);
        }
        let class = view.class.metadata.name.as_deref().unwrap_or("");
        let of_class = self.selectors.matches_all(view.class.spec.selectors.as_ref(), device);
        if !of_class.map_err(|error| AllocationError::Invalid(format!("class {class}: {error}")))? {
            return Ok(false);
        }
        let of_request = self.selectors.matches_all(view.selectors.as_ref(), device);
        let of_request = of_request
            .map_err(|error| AllocationError::Invalid(format!("claim {}: {error}", claim_key(&claim.claim))))?;
        Ok(of_request && device.is_for_node)
    }

    /// Returns what earlier allocations have of a device.
    fn use_of(&self, device: usize) -> Option<&DeviceUse> {
        let entry = &self.devices.devices[device];
        (*self.used.get(entry.pool)?)?.get(&entry.id.device)
    }

    fn is_in_use(&self, claim: usize, view: &RequestView, device: usize) -> bool {
        let is_taken = |chosen: &ChosenDevice| chosen.device == device && chosen.consumed.is_none();
        match view.is_admin {
            true => self.chosen[claim].iter().any(is_taken),
            false => {
                self.use_of(device).is_some_and(|used| used.dedicated > 0) || self.chosen.iter().flatten().any(is_taken)
            }
        }
    }

    fn has_capacity(&self, view: &RequestView, device: usize) -> bool {
        let entry = &self.devices.devices[device];
        let Some(object) = entry.device() else { return false };
        if !self.input.features.consumable_capacity {
            return true;
        }
        let shares = self.chosen.iter().flatten().filter(|chosen| chosen.device == device);
        let mut taken: Vec<&Capacities> = shares.filter_map(|chosen| chosen.consumed.as_ref()).collect();
        taken.extend(self.use_of(device).map(|used| &used.consumed));
        has_capacity(view.capacity.as_ref(), object, &taken)
    }

    /// Takes a device, unless something is against it; `must` makes a violated constraint an error.
    fn take(
        &mut self,
        claim: usize,
        view: &Arc<RequestView>,
        device: usize,
        must: bool,
    ) -> Result<bool, AllocationError> {
        let entry = &self.devices.devices[device];
        let Some(object) = entry.device() else { return Ok(false) };
        let features = self.input.features;
        let is_shared = features.consumable_capacity && object.allow_multiple_allocations == Some(true);
        if (!is_shared || !view.is_admin) && self.is_in_use(claim, view, device) {
            return Ok(false);
        }
        let is_shared_already = is_shared
            && (self.use_of(device).is_some_and(|used| !used.consumed.is_empty())
                || self.chosen.iter().flatten().any(|chosen| chosen.device == device));
        if features.taints && !is_tolerated(object, view.tolerations.as_ref()) || !self.has_capacity(view, device) {
            return Ok(false);
        }
        let constraints =
            self.claims[claim].claim.spec.devices.iter().flat_map(|devices| devices.constraints.iter().flatten());
        for constraint in constraints {
            let chosen = self.chosen[claim].iter();
            let chosen = chosen.map(|chosen| (chosen.request.name.as_str(), &self.devices.devices[chosen.device]));
            if allows_device(constraint, (&view.name, entry), chosen) {
                continue;
            }
            let (claim, request, device) = (claim_key(&self.claims[claim].claim), view.own_name(), &entry.id);
            return match must {
                false => Ok(false),
                true => Err(AllocationError::Invalid(format!(
                    "claim {claim}, request {request}: cannot add device {device} because a claim constraint would not be satisfied"
                ))),
            };
        }
        let consumes_counters =
            !is_shared_already && object.consumes_counters.as_ref().is_some_and(|all| !all.is_empty());
        if consumes_counters && !self.take_counters(device) {
            return Ok(false);
        }
        self.chosen[claim].push(ChosenDevice {
            request: view.clone(),
            device,
            consumed: is_shared.then(|| consumed_capacities(view.capacity.as_ref(), object)),
            consumes_counters,
        });
        Ok(true)
    }

    /// Gives the last device of a claim back.
    fn give_back(&mut self, claim: usize) {
        if let Some(chosen) = self.chosen[claim].pop()
            && chosen.consumes_counters
        {
            self.change_counters(chosen.device, false);
        }
    }

    /// Takes what a device uses of counters, if all of the pool are enough.
    fn take_counters(&mut self, device: usize) -> bool {
        self.change_counters(device, true);
        let pool = self.devices.devices[device].pool;
        let free = self.input.free_counters(&self.devices.pools[pool], self.devices);
        let is_enough = free.iter().all(|(key, free)| {
            self.consumed.get(&(pool, key.clone())).is_none_or(|consumed| consumed <= free) && !free.is_negative()
        });
        if !is_enough {
            self.change_counters(device, false);
        }
        is_enough
    }

    fn change_counters(&mut self, device: usize, is_taken: bool) {
        let entry = &self.devices.devices[device];
        for (key, amount) in entry.device().into_iter().flat_map(consumed_counters) {
            let consumed = self.consumed.entry((entry.pool, key)).or_insert(api::quantity::Quantity::ZERO);
            *consumed = if is_taken { consumed.plus(amount) } else { consumed.minus(amount) };
        }
    }
}

#[cfg(test)]
mod tests;
