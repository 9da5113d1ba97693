//! PreEnqueue, PreFilter, Filter, PostFilter and Score: which nodes can have the devices of a pod.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{
    AllocationContext, ClaimState, DynamicResources, NodeAllocation,
    allocation_results::NodeChoice,
    allocator::{AllocatorInput, allocate_devices},
    binding_conditions::{has_binding_timed_out, is_ready_for_binding},
    claim_tracker::allocation,
    claim_writer::{deallocate_claim, delete_extended_claim},
    consumers,
    device_requests::{AllocationError, ClaimRequests, ClassLookup, claim_key},
    extended_resources::{claim_in_memory, claim_on_node, is_in_memory, requests_devices},
    is_reserved_for, uid,
};
use crate::{
    framework::{
        Framework,
        cycle_state::CycleState,
        extension_points::{
            CycleContext, FilterPlugin, NominatingInfo, PostFilterPlugin, PreEnqueuePlugin, PreFilterPlugin,
            PreFilterResult, ScorePlugin, normalize_by_maximum,
        },
        status::{NodeStatuses, Status},
    },
    views::node_info::NodeInfo,
    views::node_selector::NodeSelector,
    views::pod_info::PodInfo,
};

/// Number of pods that can share a claim.
const MAX_CONSUMERS: usize = 256;
/// Choices of a request, at most.
const MAX_CHOICES: i64 = 8;

impl PreEnqueuePlugin for DynamicResources {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status> {
        self.claims_of(pod).map(drop).map_err(Status::unresolvable)
    }
}

impl DynamicResources {
    /// Checks a claim; returns whether it is to be allocated.
    fn check_claim(&self, pod: &PodInfo, claim: &ResourceClaim) -> Result<bool, Status> {
        if allocation(claim).is_some() {
            let is_full = consumers(claim).len() >= MAX_CONSUMERS;
            return match is_full && !is_reserved_for(claim, pod) {
                true => Err(Status::unresolvable("resourceclaim in use")),
                false => Ok(false),
            };
        }
        if self.claims.is_pending(uid(claim)) {
            let message = format!("resource claim {} is in the process of being allocated", claim_key(claim));
            return Err(Status::unresolvable(message));
        }
        for request in claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
            let exact = request.exactly.iter().map(|exact| (&exact.device_class_name, request.name.clone()));
            let choices = request.first_available.iter().flatten();
            let choices =
                choices.map(|choice| (&choice.device_class_name, format!("{}/{}", request.name, choice.name)));
            let mut is_known = false;
            for (class, request) in exact.chain(choices) {
                is_known = true;
                if self.handle.objects.device_classes.get(class).is_none() {
                    let message = format!("request {request}: device class {class} does not exist");
                    return Err(Status::unresolvable(message));
                }
            }
            if !is_known {
                let (claim, request) = (claim_key(claim), &request.name);
                let message = format!("resource claim {claim}, request {request}: unknown request type");
                return Err(Status::unresolvable(message));
            }
        }
        Ok(true)
    }
}

impl PreFilterPlugin for DynamicResources {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        // PostFilter reads it even if the pod has no claims, or the claims are not in order.
        state.write(ClaimState::default());
        let pod = cycle.pod;
        let mut claims = self.claims_of(pod).map_err(Status::unresolvable)?;
        let classes = &self.handle.objects.device_classes;
        let has_extended = requests_devices(&pod.class, classes);
        let mut must_allocate = false;
        for claim in &claims {
            must_allocate |= self.check_claim(pod, claim)?;
        }
        if has_extended {
            let claim = self.claims.extended_claim(&pod.uid).unwrap_or_else(|| Arc::new(claim_in_memory(pod)));
            must_allocate |= allocation(&claim).is_none();
            claims.push(claim);
        }
        if claims.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        if must_allocate {
            let classes = self.class_lookup();
            let is_new = |claim: &&Arc<ResourceClaim>| allocation(claim).is_none() && !is_in_memory(claim);
            let requests =
                claims.iter().filter(is_new).map(|claim| ClaimRequests::new(claim.clone(), &classes).map(Arc::new));
            let requests = requests.collect::<Result<Vec<_>, _>>().map_err(Status::error)?;
            let input = AllocatorInput {
                slices: self.slice_index(),
                allocated: self.claims.allocated(),
                timeout: self.filter_timeout,
                features: self.features,
                free_counters: Mutex::default(),
            };
            state.write_for_search(AllocationContext { input: Arc::new(input), requests: requests.into() });
        }
        state.write(ClaimState { claims: claims.into(), has_extended, must_allocate, ..ClaimState::default() });
        Ok(PreFilterResult::AllNodes)
    }
}

impl FilterPlugin for DynamicResources {
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(claims) = state.get::<ClaimState>().filter(|state| !state.claims.is_empty()) else { return Ok(()) };
        let extended = match claims.extended() {
            None => None,
            Some((_, claim)) if allocation(claim).is_some() && claims.claims.len() > 1 => None,
            Some((_, claim)) => {
                let classes = &self.handle.objects.device_classes;
                let on_node = claim_on_node(claim, &cycle.pod.class, &node.node, classes)?;
                if on_node.is_none() && claims.claims.len() == 1 {
                    return Ok(());
                }
                on_node
            }
        };
        let unavailable = self.unavailable_claims(claims, node);
        let mut found = None;
        if let Some(context) = state.get::<AllocationContext>().filter(|_| claims.must_allocate) {
            let mut wanted = context.requests.to_vec();
            if let Some(extended) = &extended {
                let requests = ClaimRequests::new(extended.claim.clone(), &self.class_lookup());
                wanted.push(Arc::new(requests.map_err(Status::error)?));
            }
            found = Some(NodeAllocation { choice: self.allocate_on_node(&context.input, wanted, node)?, extended });
        }
        let mut nodes = claims.lock();
        if !unavailable.is_empty() {
            nodes.unavailable.extend(unavailable);
            return Err(Status::unresolvable("resourceclaim not available on the node"));
        }
        if let Some(found) = found {
            nodes.by_node.insert(node.name().clone(), found);
        }
        Ok(())
    }
}

impl DynamicResources {
    /// Returns the positions of allocated claims that the node cannot use, or whose devices do not get ready.
    fn unavailable_claims(&self, state: &ClaimState, node: &NodeInfo) -> Vec<usize> {
        let is_usable = |claim: &ResourceClaim| {
            let Some(allocation) = allocation(claim) else { return true };
            let selector = allocation.node_selector.as_ref();
            let is_on_node = selector
                .is_none_or(|selector| NodeSelector::from_selector(selector).matches(node.name(), &node.node.labels));
            is_on_node
                && match is_ready_for_binding(claim) {
                    _ if !self.features.binding_conditions => true,
                    Ok(true) => true,
                    Ok(false) => !has_binding_timed_out(claim, self.binding_timeout, Timestamp::now()),
                    Err(_) => false,
                }
        };
        let claims = state.claims.iter().enumerate();
        claims.filter(|(_, claim)| !is_usable(claim)).map(|(index, _)| index).collect()
    }

    fn class_lookup(&self) -> ClassLookup {
        let classes = self.handle.objects.device_classes.clone();
        Box::new(move |name| classes.get(name))
    }

    fn allocate_on_node(
        &self,
        input: &AllocatorInput,
        claims: Vec<Arc<ClaimRequests>>,
        node: &NodeInfo,
    ) -> Result<NodeChoice, Status> {
        match allocate_devices(input, &self.selectors, claims, &node.node) {
            Ok(Some(choice)) => Ok(choice),
            Ok(None) => Err(Status::unresolvable("cannot allocate all claims")),
            Err(AllocationError::Unavailable(message)) => Err(Status::unresolvable(message)),
            Err(error @ AllocationError::Timeout) => Err(Status::error(format!("node {}: {error}", node.name()))),
            Err(error) => Err(Status::error(error)),
        }
    }

    /// Frees an allocated claim that keeps the pod from all nodes; returns what was done.
    fn free_claim(&self, pod: &PodInfo, state: &ClaimState) -> Result<Option<&'static str>, Status> {
        let (client, runtime) = (&self.handle.client, &self.handle.runtime);
        let unavailable: HashSet<usize> = state.lock().unavailable.clone();
        for (index, claim) in state.claims.iter().enumerate().filter(|(index, _)| unavailable.contains(index)) {
            let is_others = consumers(claim).iter().any(|consumer| *consumer.uid != *pod.uid);
            if state.is_extended(index) || is_others {
                continue;
            }
            runtime.block_on(deallocate_claim(client, claim)).map_err(Status::error)?;
            return Ok(Some("deallocation of ResourceClaim completed"));
        }
        let Some((_, extended)) = state.extended().filter(|(_, claim)| !is_in_memory(claim)) else { return Ok(None) };
        runtime.block_on(delete_extended_claim(client, extended)).map_err(Status::error)?;
        Ok(Some("deletion of ResourceClaim completed"))
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
            Some(state) => match self.free_claim(cycle.pod, state) {
                Ok(done) => Err(Status::unschedulable(done.unwrap_or("still not schedulable"))),
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
        let Some(found) = nodes.by_node.get(node.name()) else { return Ok(0) };
        let mut new = found.choice.chosen.iter();
        let mut score = 0;
        for claim in state.claims.iter() {
            let names: HashSet<&str> = match allocation(claim) {
                Some(allocation) => {
                    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
                    results.map(|result| result.request.as_str()).collect()
                }
                None => new.next().into_iter().flatten().map(|chosen| chosen.request.name.as_str()).collect(),
            };
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
