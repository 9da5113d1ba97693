//! Reserve and PreBind: keeps the devices of a pod in memory, writes its claims, and waits until the devices are ready.

use std::{sync::Arc, time::Duration};

use client::NewEvent;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use super::{
    ClaimState, DynamicResources, ReservedAllocation,
    binding_conditions::{BindingConditionsError, has_binding_conditions, has_binding_timed_out, is_ready_for_binding},
    claim_tracker::allocation,
    claim_writer::{
        ClaimWriteError, bind_claim, create_extended_claim, delete_extended_claim, release_claim,
        write_request_mappings,
    },
    device_requests::claim_key,
    extended_resources::is_in_memory,
    is_reserved_for, uid,
};
use crate::{
    framework::{
        cycle_state::CycleState,
        extension_points::{PreBindPlugin, ReservePlugin},
        status::Status,
    },
    views::pod_info::PodInfo,
};

/// Interval of the checks whether devices are ready.
const BINDING_CHECK: Duration = Duration::from_secs(5);

impl ReservePlugin for DynamicResources {
    fn reserve(&self, state: &mut CycleState, _pod: &Arc<PodInfo>, node: &Arc<str>) -> Result<(), Status> {
        let Some(state) = state.get::<ClaimState>() else { return Ok(()) };
        let mut new = state.unallocated().peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        let mut nodes = state.lock();
        let Some(found) = nodes.by_node.remove(node) else {
            return match state.unallocated().all(|(index, _)| state.is_extended(index)) {
                // The node itself has the extended resources.
                true => Ok(()),
                false => Err(Status::error("claim allocation not found for node")),
            };
        };
        nodes.by_node.clear();
        let results = found.choice.results(node);
        for ((_, claim), allocation) in new.zip(&results) {
            self.claims.add_pending(uid(claim), allocation);
        }
        nodes.reserved = Some(ReservedAllocation { results, extended: found.extended });
        Ok(())
    }

    fn unreserve(&self, state: &CycleState, pod: &Arc<PodInfo>, _node: &Arc<str>) {
        let Some(state) = state.get::<ClaimState>() else { return };
        for (index, claim) in state.claims.iter().enumerate() {
            let known = self.claims.get(&pod.class.namespace, claim.metadata.name.as_deref().unwrap_or(""));
            self.claims.remove_pending(uid(claim), known.as_deref());
            let Some(current) = state.current(index).filter(|current| !is_in_memory(current)) else { continue };
            let is_extended = state.is_extended(index);
            if !is_extended && (allocation(&current).is_none() || !is_reserved_for(&current, pod)) {
                continue;
            }
            let (client, pod) = (self.handle.client.clone(), pod.clone());
            self.handle.runtime.spawn(async move {
                let result = match is_extended {
                    true => delete_extended_claim(&client, &current).await,
                    false => release_claim(&client, &pod, &current).await,
                };
                if let Err(error) = result {
                    tracing::warn!(claim = claim_key(&current), %error, "scheduler: claim not released");
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
        node: &'a Arc<str>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(state) = state.get::<ClaimState>() else { return Ok(()) };
            for (index, claim) in state.claims.iter().enumerate().filter(|(_, claim)| !is_reserved_for(claim, pod)) {
                self.write_claim(state, (index, claim), pod).await.map_err(Status::error)?;
            }
            let mut current = (0..state.claims.len()).filter_map(|index| state.current(index));
            if !self.features.binding_conditions || !current.any(|claim| has_binding_conditions(&claim)) {
                return Ok(());
            }
            self.announce_wait(pod, node);
            self.wait_for_devices(state).await.map_err(Status::error)
        })
    }
}

impl DynamicResources {
    /// Writes the allocation and reservation of a claim; the one for extended resources is created first.
    async fn write_claim(
        &self,
        state: &ClaimState,
        (index, claim): (usize, &Arc<ResourceClaim>),
        pod: &PodInfo,
    ) -> Result<(), ClaimWriteError> {
        let client = &self.handle.client;
        let found = state.lock().reserved.clone();
        let place = state.unallocated().position(|(unallocated, _)| unallocated == index);
        let wanted: Option<AllocationResult> = place.and_then(|place| found.as_ref()?.results.get(place)).cloned();
        let extended = found.and_then(|found| found.extended).filter(|_| state.is_extended(index));
        if state.is_extended(index) && extended.is_none() && is_in_memory(claim) {
            // The node itself has the extended resources.
            return Ok(());
        }
        let mut current = claim.clone();
        if let Some(extended) = extended.as_ref().filter(|_| is_in_memory(claim)) {
            current = Arc::new(create_extended_claim(client, extended).await?);
            state.lock_written().insert(index, current.clone());
        }
        let written = bind_claim(client, pod, &current, wanted.as_ref()).await?;
        state.lock_written().insert(index, written.clone());
        self.claims.assume(&written);
        self.claims
            .remove_pending(uid(claim), Some(&written).filter(|written| uid(written) == uid(claim)).map(AsRef::as_ref));
        match &extended {
            Some(extended) => {
                let name = written.metadata.name.as_deref().unwrap_or("");
                write_request_mappings(client, pod, name, extended).await
            }
            None => Ok(()),
        }
    }

    fn announce_wait(&self, pod: &PodInfo, node: &str) {
        if let Some(recorder) = self.handle.recorder_of(&pod.class.scheduler_name) {
            recorder.record(NewEvent {
                type_: "Normal",
                regarding: pod.reference(),
                related: None,
                reason: "BindingConditionsPending",
                action: "Scheduling",
                note: format!("waiting for binding conditions for device on node {node}"),
            });
        }
    }

    async fn wait_for_devices(&self, state: &ClaimState) -> Result<(), BindingConditionsError> {
        let ready = async {
            while !self.are_devices_ready(state)? {
                tokio::time::sleep(BINDING_CHECK).await;
            }
            Ok(())
        };
        let result = tokio::time::timeout(self.binding_timeout, ready).await;
        result.unwrap_or(Err(BindingConditionsError::WaitTimeout))
    }

    fn are_devices_ready(&self, state: &ClaimState) -> Result<bool, BindingConditionsError> {
        for index in 0..state.claims.len() {
            let Some(claim) = state.current(index).filter(|claim| !is_in_memory(claim)) else { continue };
            let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
            let newest = self.claims.get(namespace.unwrap_or(""), name.unwrap_or(""));
            let newest = newest.ok_or_else(|| BindingConditionsError::Gone(claim_key(&claim)))?;
            state.lock_written().insert(index, newest.clone());
            if !is_ready_for_binding(&newest)? {
                return match has_binding_timed_out(&newest, self.binding_timeout, Timestamp::now()) {
                    true => Err(BindingConditionsError::ClaimTimeout(name.unwrap_or("").to_owned())),
                    false => Ok(false),
                };
            }
        }
        Ok(true)
    }
}
