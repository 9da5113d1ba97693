//! Claims as they will be once the API server has what the scheduler decided, and the devices that they have.
//!
//! An allocation is *pending* from Reserve until it is written. A written claim is *assumed* until the informer has it. Both count
//! as allocated, so that no other pod gets the same devices.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use client::{CachedView, ResourceEvent, SharedInformer};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use super::allocated_state::AllocatedState;

/// Index of the claims for extended resources by the uid of their pod.
const EXTENDED_BY_POD: &str = "extendedPod";
/// Annotation of claims for extended resources.
pub const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// The claims.
pub struct ClaimTracker {
    claims: SharedInformer<ResourceClaim>,
    state: Arc<Mutex<TrackerState>>,
}

#[derive(Default)]
struct TrackerState {
    allocated: Arc<AllocatedState>,
    /// Allocations that count, by the claim's uid.
    counted: HashMap<String, AllocationResult>,
    /// Numbers of pods with the allocation in common that was not written yet, by the claim's uid.
    pending: HashMap<String, usize>,
    /// Written claims that the informer does not have yet, by uid.
    assumed: HashMap<String, Arc<ResourceClaim>>,
}

/// Returns the allocation of a claim.
pub fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

fn uid(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or("")
}

impl TrackerState {
    fn count(&mut self, uid: &str, allocation: Option<&AllocationResult>) {
        if self.counted.get(uid) == allocation {
            return;
        }
        let allocated = Arc::make_mut(&mut self.allocated);
        if let Some(known) = self.counted.remove(uid) {
            allocated.remove(&known);
        }
        if let Some(allocation) = allocation {
            allocated.add(allocation);
            self.counted.insert(uid.to_owned(), allocation.clone());
        }
    }

    fn observe(&mut self, claim: &ResourceClaim) {
        let uid = uid(claim);
        if self.assumed.get(uid).is_some_and(|assumed| is_newer(claim, assumed)) {
            self.assumed.remove(uid);
        }
        let is_decided_here = self.pending.contains_key(uid) || self.assumed.contains_key(uid);
        if !is_decided_here || allocation(claim).is_some() {
            self.count(uid, allocation(claim));
        }
    }

    fn forget(&mut self, claim: &ResourceClaim) {
        let uid = uid(claim);
        self.assumed.remove(uid);
        self.count(uid, None);
    }
}

/// Whether a claim is at least as new as another version of it.
fn is_newer(claim: &ResourceClaim, other: &ResourceClaim) -> bool {
    let number = |claim: &ResourceClaim| claim.resource_version().parse::<u64>().unwrap_or(u64::MAX);
    number(claim) >= number(other)
}

impl ClaimTracker {
    /// Follows an informer.
    pub fn new(claims: SharedInformer<ResourceClaim>) -> Self {
        claims.add_index(EXTENDED_BY_POD, |claim| extended_owner(claim).into_iter().map(str::to_owned).collect());
        let state: Arc<Mutex<TrackerState>> = Arc::default();
        let followed = state.clone();
        claims.add_event_handler(move |event| {
            let mut state = followed.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                ResourceEvent::Added(claim) | ResourceEvent::Updated { new: claim, .. } => state.observe(claim),
                ResourceEvent::Deleted(claim) => state.forget(claim),
            }
        });
        Self { claims, state }
    }

    /// Returns a claim, the assumed version before the informer's.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        let known = self.claims.get(namespace, name)?;
        let state = self.lock();
        let assumed = state.assumed.get(uid(&known)).filter(|assumed| !is_newer(&known, assumed));
        Some(assumed.cloned().unwrap_or(known))
    }

    /// Returns the claim that was created for the extended resources of a pod.
    pub fn extended_claim(&self, pod: &str) -> Option<Arc<ResourceClaim>> {
        let claims = self.claims.by_index(EXTENDED_BY_POD, pod);
        let first = claims.into_iter().min_by(|a, b| a.metadata.name.cmp(&b.metadata.name))?;
        let (namespace, name) = first.namespace_and_name();
        self.get(namespace, name)
    }

    /// The devices that are allocated, written or not.
    pub fn allocated(&self) -> Arc<AllocatedState> {
        self.lock().allocated.clone()
    }

    /// Whether the claim's allocation is decided and not written yet.
    pub fn is_pending(&self, uid: &str) -> bool {
        self.lock().pending.contains_key(uid)
    }

    /// Notes an allocation that is decided.
    pub fn add_pending(&self, uid: &str, allocation: &AllocationResult) {
        let mut state = self.lock();
        *state.pending.entry(uid.to_owned()).or_insert(0) += 1;
        state.count(uid, Some(allocation));
    }

    /// Forgets a decided allocation that is not written; an allocation that was written stays.
    pub fn remove_pending(&self, uid: &str, written: Option<&ResourceClaim>) {
        let mut state = self.lock();
        if state.pending.remove(uid).is_some() {
            let allocation = written.and_then(allocation).cloned();
            state.count(uid, allocation.as_ref());
        }
    }

    /// Assumes a claim that was written.
    pub fn assume(&self, claim: &Arc<ResourceClaim>) {
        let (namespace, name) = claim.namespace_and_name();
        let is_known = self.claims.get(namespace, name).is_some_and(|known| is_newer(&known, claim));
        let mut state = self.lock();
        state.pending.remove(uid(claim));
        if !is_known {
            state.assumed.insert(uid(claim).to_owned(), claim.clone());
            state.count(uid(claim), allocation(claim));
        }
    }

    fn lock(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the uid of the pod that a claim for extended resources was created for.
fn extended_owner(claim: &ResourceClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    let is_extended = annotations.get(EXTENDED_CLAIM).is_some_and(|value| value == "true");
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| is_extended && owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}
