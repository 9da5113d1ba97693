//! DynamicResources: allocates devices for the ResourceClaims of a pod and reserves the claims for it.

mod allocator;
mod device_pools;
mod device_selectors;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use client::ApiErrorExt;
use futures::future::BoxFuture;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use self::{
    allocator::{AllocationError, AllocatorInput, allocate_devices},
    device_pools::DeviceId,
    device_selectors::SelectorCache,
};
use crate::{
    config::plugin_args::DynamicResourcesArgs,
    framework::{
        Framework,
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{
            CycleContext, EnqueueExtensions, FilterPlugin, NominatingInfo, Plugin, PostFilterPlugin, PreBindPlugin,
            PreEnqueuePlugin, PreFilterPlugin, PreFilterResult, ReservePlugin, ScorePlugin, normalize_by_maximum,
        },
        status::{NodeStatuses, Status},
    },
    handle::SchedulerHandle,
    views::node_info::NodeInfo,
    views::node_selector::NodeSelector,
    views::pod_info::PodInfo,
    views::resource_claims::EntryClaim,
};

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Number of pods that can share a claim.
const MAX_CONSUMERS: usize = 256;
/// Choices of a request, at most.
const MAX_CHOICES: i64 = 8;
/// Number of tries of a write that conflicts.
const CONFLICT_TRIES: usize = 5;

/// The plug-in.
pub struct DynamicResources {
    handle: Arc<SchedulerHandle>,
    selectors: SelectorCache,
    /// Allocations that are decided and not written yet, by the claim's uid.
    pending: Mutex<HashMap<String, AllocationResult>>,
    filter_timeout: Duration,
}

/// The claims of the pod, and what was found for them on each node.
#[derive(Clone)]
struct ClaimState {
    claims: Arc<[Arc<ResourceClaim>]>,
    input: Option<Arc<AllocatorInput>>,
    by_node: Arc<Mutex<NodeAllocations>>,
}

#[derive(Default)]
struct NodeAllocations {
    /// Allocations of the claims that had none, in order.
    allocations: HashMap<Arc<str>, Vec<AllocationResult>>,
    /// Allocated claims that a node cannot use.
    unavailable: HashSet<usize>,
}

fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

fn consumers(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or(&[])
}

fn is_reserved_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    consumers(claim).iter().any(|consumer| *consumer.uid == *pod.uid)
}

fn key(claim: &ResourceClaim) -> String {
    format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any())
}

impl ClaimState {
    fn lock(&self) -> MutexGuard<'_, NodeAllocations> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unallocated(&self) -> Vec<Arc<ResourceClaim>> {
        self.claims.iter().filter(|claim| allocation(claim).is_none()).cloned().collect()
    }
}

impl DynamicResources {
    /// Creates the plug-in.
    pub fn new(args: &DynamicResourcesArgs, handle: Arc<SchedulerHandle>) -> Self {
        let nanos = api::duration::parse(&args.filter_timeout).and_then(|nanos| u64::try_from(nanos).ok());
        let filter_timeout = nanos.map_or(Duration::ZERO, Duration::from_nanos);
        Self { handle, selectors: SelectorCache::default(), pending: Mutex::default(), filter_timeout }
    }

    fn lock_pending(&self) -> MutexGuard<'_, HashMap<String, AllocationResult>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
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
            let claim = self.handle.objects.resource_claims.get(&pod.class.namespace, &name);
            let claim = claim.ok_or_else(|| format!("resourceclaim.resource.k8s.io {name:?} not found"))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("resourceclaim {name:?} is being deleted"));
            }
            let owners = claim.metadata.owner_references.iter().flatten();
            let is_owned = owners.into_iter().any(|owner| owner.controller == Some(true) && *owner.uid == *pod.uid);
            if is_generated && !is_owned {
                return Err(format!(
                    "ResourceClaim {} was not created for Pod {} (Pod is not owner)",
                    key(&claim),
                    pod.key()
                ));
            }
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Checks a claim; returns whether it is to be allocated.
    fn check_claim(&self, pod: &PodInfo, claim: &ResourceClaim) -> Result<bool, Status> {
        if allocation(claim).is_some() {
            let is_full = consumers(claim).len() >= MAX_CONSUMERS;
            return match is_full && !is_reserved_for(claim, pod) {
                true => Err(Status::unresolvable("resourceclaim in use")),
                false => Ok(false),
            };
        }
        if self.lock_pending().contains_key(claim.metadata.uid.as_deref().unwrap_or("")) {
            let message = format!("resource claim {} is in the process of being allocated", key(claim));
            return Err(Status::unresolvable(message));
        }
        for request in claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
            let exact = request.exactly.iter().map(|exact| (&exact.device_class_name, request.name.clone()));
            let choices = request.first_available.iter().flatten();
            let choices =
                choices.map(|choice| (&choice.device_class_name, format!("{}/{}", request.name, choice.name)));
            for (class, request) in exact.chain(choices) {
                if self.handle.objects.device_classes.get(class).is_none() {
                    let message = format!("request {request}: device class {class} does not exist");
                    return Err(Status::unresolvable(message));
                }
            }
        }
        Ok(true)
    }

    /// Collects the devices that are allocated, written or not.
    fn allocated_devices(&self) -> HashSet<DeviceId> {
        let pending = self.lock_pending();
        let claims = self.handle.objects.resource_claims.list();
        let allocations = claims.iter().filter_map(|claim| allocation(claim)).chain(pending.values());
        let results =
            allocations.flat_map(|allocation| &allocation.devices).flat_map(|devices| devices.results.iter().flatten());
        results
            .filter(|result| result.admin_access != Some(true))
            .map(|result| DeviceId {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
            })
            .collect()
    }

    /// Writes the allocation and the reservation of a claim.
    async fn bind_claim(
        &self,
        pod: &PodInfo,
        claim: &ResourceClaim,
        allocation: Option<AllocationResult>,
    ) -> Result<(), String> {
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<ResourceClaim> = Api::namespaced(self.handle.client.clone(), &namespace);
        let mut current = claim.clone();
        for attempt in 1.. {
            match self.write_claim(&api, pod, current, allocation.as_ref()).await {
                Err(WriteError::Conflict(_)) if attempt < CONFLICT_TRIES => {
                    let fresh = api.get(&claim.name_any()).await;
                    current = fresh.map_err(|error| {
                        format!("get updated claim {} after conflict: {}", key(claim), error.server_message())
                    })?;
                }
                Err(WriteError::Conflict(message) | WriteError::Other(message)) => return Err(message),
                Ok(()) => return Ok(()),
            }
        }
        Ok(())
    }

    async fn write_claim(
        &self,
        api: &Api<ResourceClaim>,
        pod: &PodInfo,
        mut claim: ResourceClaim,
        allocation: Option<&AllocationResult>,
    ) -> Result<(), WriteError> {
        let name = key(&claim);
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(WriteError::Other(format!("claim {name} got deleted in the meantime")));
        }
        if let Some(allocation) = allocation {
            if self::allocation(&claim).is_some() {
                return Err(WriteError::Other(format!("claim {name} got allocated elsewhere in the meantime")));
            }
            if !claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                claim.finalizers_mut().push(FINALIZER.into());
                let written = api.replace(&claim.name_any(), &PostParams::default(), &claim).await;
                claim = written.map_err(|error| WriteError::new(&format!("add finalizer to claim {name}"), &error))?;
            }
            claim.status.get_or_insert_default().allocation = Some(allocation.clone());
        }
        let status = claim.status.get_or_insert_default();
        let Some(allocated) = &mut status.allocation else {
            return Err(WriteError::Other(format!("claim {name} got deallocated elsewhere in the meantime")));
        };
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
        allocated.allocation_timestamp.get_or_insert(now);
        status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".into(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
        });
        let what = match allocation {
            Some(_) => format!("add allocation and reservation to claim {name}"),
            None => format!("add reservation to claim {name}"),
        };
        let written = api.replace_status(&claim.name_any(), &PostParams::default(), &claim).await;
        written.map(drop).map_err(|error| WriteError::new(&what, &error))
    }

    /// Frees an allocated claim that keeps the pod from all nodes; returns whether there is one.
    fn deallocate(&self, pod: &PodInfo, state: &ClaimState) -> Result<bool, Status> {
        let unavailable: Vec<usize> = state.lock().unavailable.iter().copied().collect();
        for claim in unavailable.into_iter().filter_map(|index| state.claims.get(index)) {
            let others = consumers(claim).iter().any(|consumer| *consumer.uid != *pod.uid);
            if others {
                continue;
            }
            let mut freed = (**claim).clone();
            freed.status = None;
            let api: Api<ResourceClaim> =
                Api::namespaced(self.handle.client.clone(), &claim.namespace().unwrap_or_default());
            let written = self
                .handle
                .runtime
                .block_on(async { api.replace_status(&freed.name_any(), &PostParams::default(), &freed).await });
            return written.map(|_| true).map_err(|error| Status::error(error.server_message()));
        }
        Ok(false)
    }
}

/// A write of a claim that failed.
enum WriteError {
    /// The claim was changed meanwhile.
    Conflict(String),
    /// Anything else.
    Other(String),
}

impl WriteError {
    fn new(what: &str, error: &kube::Error) -> Self {
        let message = format!("{what}: {}", error.server_message());
        if error.is_conflict() { Self::Conflict(message) } else { Self::Other(message) }
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

impl PreEnqueuePlugin for DynamicResources {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status> {
        self.claims_of(pod).map(drop).map_err(Status::unresolvable)
    }
}

impl PreFilterPlugin for DynamicResources {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        // PostFilter reads it even if the pod has no claims, or the claims are not in order.
        state.write(ClaimState { claims: Arc::default(), input: None, by_node: Arc::default() });
        let claims = self.claims_of(cycle.pod).map_err(Status::unresolvable)?;
        if claims.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        let mut must_allocate = false;
        for claim in &claims {
            must_allocate |= self.check_claim(cycle.pod, claim)?;
        }
        let input = must_allocate.then(|| {
            Arc::new(AllocatorInput {
                slices: self.handle.objects.resource_slices.list(),
                allocated: self.allocated_devices(),
                classes: self.handle.objects.device_classes.clone(),
                timeout: self.filter_timeout,
            })
        });
        state.write(ClaimState { claims: claims.into(), input, by_node: Arc::default() });
        Ok(PreFilterResult::AllNodes)
    }
}

impl FilterPlugin for DynamicResources {
    fn filter(&self, _cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(state) = state.get::<ClaimState>() else { return Ok(()) };
        let is_usable = |claim: &ResourceClaim| {
            let selector = allocation(claim).and_then(|allocation| allocation.node_selector.as_ref());
            selector
                .is_none_or(|selector| NodeSelector::from_selector(selector).matches(node.name(), &node.node.labels))
        };
        let unavailable: Vec<usize> =
            state.claims.iter().enumerate().filter(|(_, claim)| !is_usable(claim)).map(|(index, _)| index).collect();
        let mut found = None;
        if let Some(input) = &state.input {
            let claims = state.unallocated();
            found = match allocate_devices(input, &self.selectors, &claims, &node.node) {
                Ok(Some(allocations)) => Some(allocations),
                Ok(None) => return Err(Status::unresolvable("cannot allocate all claims")),
                Err(AllocationError::Unavailable(message)) => return Err(Status::unresolvable(message)),
                Err(error @ AllocationError::Timeout) => {
                    return Err(Status::error(format!("node {}: {error}", node.name())));
                }
                Err(error) => return Err(Status::error(error)),
            };
        }
        let mut nodes = state.lock();
        if !unavailable.is_empty() {
            nodes.unavailable.extend(unavailable);
            return Err(Status::unresolvable("resourceclaim not available on the node"));
        }
        if let Some(allocations) = found {
            nodes.allocations.insert(node.name().clone(), allocations);
        }
        Ok(())
    }
}

impl PostFilterPlugin for DynamicResources {
    fn post_filter(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        _framework: &Framework,
        _nodes: &NodeStatuses,
    ) -> (NominatingInfo, Result<(), Status>) {
        let result = match state.get::<ClaimState>() {
            // Another plug-in rejected the pod before this one was asked; the message is upstream's.
            None => Err(Status::error("not found")),
            Some(state) if state.claims.is_empty() => Err(Status::unschedulable("no new claims to deallocate")),
            Some(state) => match self.deallocate(cycle.pod, state) {
                Ok(true) => Err(Status::unschedulable("deallocation of ResourceClaim completed")),
                Ok(false) => Err(Status::unschedulable("still not schedulable")),
                Err(status) => Err(status),
            },
        };
        (NominatingInfo::Keep, result)
    }
}

impl ScorePlugin for DynamicResources {
    /// Favours nodes where the preferred choices of requests were allocated.
    fn score(&self, _cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let Some(state) = state.get::<ClaimState>() else { return Ok(0) };
        let nodes = state.lock();
        let Some(found) = nodes.allocations.get(node.name()) else { return Ok(0) };
        let mut new = found.iter();
        let mut score = 0;
        for claim in state.claims.iter() {
            let Some(allocation) = allocation(claim).or_else(|| new.next()) else { continue };
            let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
            let names: HashSet<&str> = results.map(|result| result.request.as_str()).collect();
            for request in claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
                for (place, choice) in (0..).zip(request.first_available.iter().flatten()) {
                    if names.contains(format!("{}/{}", request.name, choice.name).as_str()) {
                        score += MAX_CHOICES - place;
                    }
                }
            }
        }
        Ok(score)
    }

    fn normalize(
        &self,
        _cycle: CycleContext<'_>,
        _state: &CycleState,
        _nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) -> Result<(), Status> {
        normalize_by_maximum(scores, false);
        Ok(())
    }
}

impl ReservePlugin for DynamicResources {
    fn reserve(&self, state: &mut CycleState, _pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status> {
        let Some(state) = state.get::<ClaimState>() else { return Ok(()) };
        let claims = state.unallocated();
        if claims.is_empty() {
            return Ok(());
        }
        let found = state.lock().allocations.get(node).cloned();
        let found = found.ok_or_else(|| Status::error("claim allocation not found for node"))?;
        let mut pending = self.lock_pending();
        for (claim, allocation) in claims.iter().zip(found) {
            pending.insert(claim.uid().unwrap_or_default(), allocation);
        }
        Ok(())
    }

    fn unreserve(&self, state: &CycleState, pod: &Arc<PodInfo>, _node: &Arc<str>) {
        let Some(state) = state.get::<ClaimState>() else { return };
        for claim in state.claims.iter() {
            self.lock_pending().remove(claim.metadata.uid.as_deref().unwrap_or(""));
            let namespace = claim.namespace().unwrap_or_default();
            let current = self.handle.objects.resource_claims.get(&namespace, &claim.name_any());
            if !current.is_some_and(|current| allocation(&current).is_some() && is_reserved_for(&current, pod)) {
                continue;
            }
            let patch = json!({"metadata": {"uid": claim.metadata.uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": *pod.uid}]}});
            let api: Api<ResourceClaim> = Api::namespaced(self.handle.client.clone(), &namespace);
            let name = claim.name_any();
            self.handle.runtime.spawn(async move {
                let params = PatchParams::default();
                if let Err(error) = api.patch_status(&name, &params, &Patch::Strategic(patch)).await {
                    tracing::warn!(claim = name, %error, "scheduler: claim not released");
                }
            });
        }
    }
}

impl PreBindPlugin for DynamicResources {
    fn needs_pre_bind(&self, state: &CycleState, _pod: &Arc<PodInfo>, _node: &Arc<str>) -> Result<bool, Status> {
        Ok(state.get::<ClaimState>().is_some_and(|state| !state.claims.is_empty()))
    }

    fn pre_bind<'a>(
        &'a self,
        state: &'a CycleState,
        pod: &'a Arc<PodInfo>,
        _node: &'a Arc<str>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(state) = state.get::<ClaimState>() else { return Ok(()) };
            for claim in state.claims.iter().filter(|claim| !is_reserved_for(claim, pod)) {
                let uid = claim.metadata.uid.as_deref().unwrap_or("");
                let allocation = self.lock_pending().get(uid).cloned();
                self.bind_claim(pod, claim, allocation).await.map_err(Status::error)?;
                self.wait_for_claim(claim).await;
                self.lock_pending().remove(uid);
            }
            Ok(())
        })
    }
}

impl DynamicResources {
    /// Waits until the informer has the allocation, so that its devices count as taken without a gap.
    async fn wait_for_claim(&self, claim: &ResourceClaim) {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        for _ in 0..100 {
            match self.handle.objects.resource_claims.get(&namespace, &name) {
                Some(current) if allocation(&current).is_none() => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => return,
            }
        }
    }
}

impl EnqueueExtensions for DynamicResources {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let changed = ActionType::ADD.or(ActionType::UPDATE);
        let node = ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL).or(ActionType::UPDATE_NODE_ALLOCATABLE);
        vec![
            ClusterEvent::new(EventResource::Node, node),
            ClusterEvent::new(EventResource::ResourceClaim, changed),
            ClusterEvent::new(EventResource::Pod, ActionType::UPDATE_POD_GENERATED_CLAIM),
            ClusterEvent::new(EventResource::DeviceClass, changed),
            ClusterEvent::new(EventResource::ResourceSlice, changed),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::ResourceClaim(change) => {
                let (Some(new), Ok(claims)) = (&change.new, self.claims_of(pod)) else {
                    return QueueingHint::Skip;
                };
                let is_used = claims.iter().any(|claim| claim.metadata.uid == new.metadata.uid);
                match &change.old {
                    Some(old) if allocation(old).is_some() && allocation(new).is_none() => true,
                    Some(old) => is_used && old.status != new.status,
                    None => is_used,
                }
            }
            EventObject::Pod(change) => {
                change.new.as_ref().is_some_and(|new| new.uid == pod.uid && self.claims_of(new).is_ok())
            }
            _ => true,
        })
    }

    fn hints_by_class(&self) -> bool {
        false
    }
}
