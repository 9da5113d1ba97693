//! DynamicResources: allocates devices for the ResourceClaims of a pod, and for its requests for extended resources that
//! devices provide, and reserves the claims for it.

mod allocated_state;
mod allocation_results;
mod allocator;
mod binding_conditions;
mod capacity;
mod claim_tracker;
mod claim_writer;
mod constraints;
mod device_pools;
mod device_requests;
mod device_selectors;
mod extended_resources;
mod filtering;
mod hints;
mod reservation;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};

use self::{
    allocation_results::NodeChoice,
    allocator::AllocatorInput,
    claim_tracker::{ClaimTracker, allocation},
    device_pools::SliceIndex,
    device_requests::{ClaimRequests, claim_key},
    device_selectors::SelectorCache,
    extended_resources::ExtendedClaim,
};
use crate::{
    config::plugin_args::DynamicResourcesArgs,
    framework::extension_points::{
        EnqueueExtensions, FilterPlugin, Plugin, PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, PreFilterPlugin,
        ReservePlugin, ScorePlugin,
    },
    handle::SchedulerHandle,
    views::pod_info::PodInfo,
    views::resource_claims::EntryClaim,
};

/// The plug-in.
pub struct DynamicResources {
    handle: Arc<SchedulerHandle>,
    claims: ClaimTracker,
    selectors: SelectorCache,
    /// The published devices; `None` since they changed.
    slices: Arc<Mutex<Option<Arc<SliceIndex>>>>,
    filter_timeout: Duration,
    binding_timeout: Duration,
    features: DeviceFeatures,
}

/// Features of devices that are on.
#[derive(Clone, Copy)]
struct DeviceFeatures {
    binding_conditions: bool,
    consumable_capacity: bool,
    taints: bool,
}

/// The claims of the pod, and what was found for them on each node.
#[derive(Clone, Default)]
struct ClaimState {
    /// The user's claims; that for extended resources is the last, if there is one.
    claims: Arc<[Arc<ResourceClaim>]>,
    has_extended: bool,
    must_allocate: bool,
    by_node: Arc<Mutex<NodeAllocations>>,
    /// Claims that were written before the binding, by position.
    written: Arc<Mutex<HashMap<usize, Arc<ResourceClaim>>>>,
}

/// The state that allocations of the cycle read; dropped when a node was found.
#[derive(Clone)]
struct AllocationContext {
    input: Arc<AllocatorInput>,
    /// The requests of the claims without allocation, but for the one for extended resources.
    requests: Arc<[Arc<ClaimRequests>]>,
}

#[derive(Default)]
struct NodeAllocations {
    by_node: HashMap<Arc<str>, NodeAllocation>,
    /// Allocated claims that a node cannot use, by position.
    unavailable: HashSet<usize>,
    /// The devices that were reserved on the chosen node.
    reserved: Option<ReservedAllocation>,
}

/// The results for the claims without allocation, in order.
struct NodeAllocation {
    choice: NodeChoice,
    /// The claim for extended resources that the node does not have itself.
    extended: Option<ExtendedClaim>,
}

/// The allocations of the claims that had none, in order.
#[derive(Clone)]
struct ReservedAllocation {
    results: Vec<AllocationResult>,
    extended: Option<ExtendedClaim>,
}

fn consumers(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or(&[])
}

fn is_reserved_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    consumers(claim).iter().any(|consumer| *consumer.uid == *pod.uid)
}

fn uid(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or("")
}

impl ClaimState {
    fn lock(&self) -> MutexGuard<'_, NodeAllocations> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_written(&self) -> MutexGuard<'_, HashMap<usize, Arc<ResourceClaim>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claim for extended resources with its position.
    fn extended(&self) -> Option<(usize, &Arc<ResourceClaim>)> {
        self.claims.iter().enumerate().next_back().filter(|_| self.has_extended)
    }

    fn is_extended(&self, index: usize) -> bool {
        self.extended().is_some_and(|(extended, _)| extended == index)
    }

    /// The claims without allocation, with their positions.
    fn unallocated(&self) -> impl Iterator<Item = (usize, &Arc<ResourceClaim>)> {
        self.claims.iter().enumerate().filter(|(_, claim)| allocation(claim).is_none())
    }

    /// A claim as it was written, or as it was in the beginning.
    fn current(&self, index: usize) -> Option<Arc<ResourceClaim>> {
        self.lock_written().get(&index).or_else(|| self.claims.get(index)).cloned()
    }
}

impl DynamicResources {
    /// Creates the plug-in.
    pub fn new(args: &DynamicResourcesArgs, handle: Arc<SchedulerHandle>) -> Self {
        let duration = |text: &str| {
            let nanos = api::duration::parse(text).and_then(|nanos| u64::try_from(nanos).ok());
            nanos.map_or(Duration::ZERO, Duration::from_nanos)
        };
        let is_enabled = |name: &str| handle.features.is_enabled(name);
        let features = DeviceFeatures {
            binding_conditions: is_enabled("DRADeviceBindingConditions"),
            consumable_capacity: is_enabled("DRAConsumableCapacity"),
            taints: is_enabled("DRADeviceTaints"),
        };
        let has_filter_timeout = is_enabled("DRASchedulerFilterTimeout");
        let slices: Arc<Mutex<Option<Arc<SliceIndex>>>> = Arc::default();
        let outdated = slices.clone();
        handle.objects.resource_slices.add_event_handler(move |_| {
            *outdated.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Self {
            claims: ClaimTracker::new(handle.objects.resource_claims.clone()),
            features,
            handle,
            selectors: SelectorCache::default(),
            slices,
            filter_timeout: if has_filter_timeout { duration(&args.filter_timeout) } else { Duration::ZERO },
            binding_timeout: duration(&args.binding_timeout),
        }
    }

    /// Returns the claims of a pod, or why they are not in order.
    fn claims_of(&self, pod: &PodInfo) -> Result<Vec<Arc<ResourceClaim>>, String> {
        let mut claims = Vec::new();
        for entry in &pod.class.resource_claims {
            let (name, is_generated) = match entry.claim_of(pod) {
                EntryClaim::Named(name, is_generated) => (name, is_generated),
                EntryClaim::NotNeeded => continue,
                EntryClaim::Missing => return Err(format!("pod \"{}\": ResourceClaim not created yet", pod.key())),
            };
            let claim = self.claims.get(&pod.class.namespace, &name);
            let claim =
                claim.ok_or_else(|| format!("could not find ResourceClaim \"{}/{name}\"", pod.class.namespace))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("resourceclaim {name:?} is being deleted"));
            }
            let owners = claim.metadata.owner_references.iter().flatten();
            let is_owned = owners.into_iter().any(|owner| owner.controller == Some(true) && *owner.uid == *pod.uid);
            if is_generated && !is_owned {
                return Err(format!(
                    "ResourceClaim {} was not created for Pod {} (Pod is not owner)",
                    claim_key(&claim),
                    pod.key()
                ));
            }
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Returns the published devices.
    fn slice_index(&self) -> Arc<SliceIndex> {
        let mut known = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(SliceIndex::new(&self.handle.objects.resource_slices.list()));
        known.get_or_insert_with(new).clone()
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueuePlugin> {
        Some(self)
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_post_filter(&self) -> Option<&dyn PostFilterPlugin> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        Some(self)
    }

    fn as_reserve(&self) -> Option<&dyn ReservePlugin> {
        Some(self)
    }

    fn as_pre_bind(&self) -> Option<&dyn PreBindPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}
