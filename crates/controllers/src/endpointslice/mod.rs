//! endpointslice-controller: maintains the EndpointSlices of services with a selector.

mod hints;
mod reconcile;
mod slice;
#[cfg(test)]
mod tests;
mod topology;

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use self::{
    hints::TrafficDistribution,
    reconcile::{SlicePlan, SliceReconciler},
    topology::{HintsEvent, TopologyCache},
};
use crate::{
    ControllerContext, EndpointOptions,
    controller::{Controller, ControllerWatches, run_controller},
    node_readiness::is_node_ready,
    object_key::ObjectKey,
    pod_view::PodView,
    service_endpoints::{
        membership,
        slice_tracker::EndpointSliceTracker,
        trigger_time::{TriggerTimeTracker, annotate_trigger_time},
    },
};

/// Least delay between a foreign change of a slice and the sync of its service.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);

struct EndpointSliceController {
    client: Client,
    services: SharedInformer<Service>,
    pods: SharedInformer<PodView>,
    nodes: SharedInformer<Node>,
    slices: SharedInformer<EndpointSlice>,
    tracker: EndpointSliceTracker,
    trigger_times: TriggerTimeTracker,
    topology: TopologyCache,
    recorder: EventRecorder,
    queue: WorkQueue<SliceWork>,
    options: EndpointOptions,
}

/// The unit of work: a service, or the distribution of nodes over zones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SliceWork {
    Service(ObjectKey),
    NodeTopology,
}

/// The slices of a service could not be written; the messages as upstream aggregates them.
#[derive(Debug, thiserror::Error)]
#[error("{}", aggregate_messages(.0))]
struct SliceSyncError(Vec<String>);

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let slices = context.informers.informer_for();
    let build = |queue| EndpointSliceController {
        services: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        nodes: context.informers.informer_for(),
        tracker: EndpointSliceTracker::new(slice::MANAGER, &slices),
        slices,
        trigger_times: TriggerTimeTracker::default(),
        topology: TopologyCache::default(),
        recorder: EventRecorder::new(context.client.clone(), "endpoint-slice-controller", None),
        options: context.options.endpoints.clone(),
        client: context.client.clone(),
        queue,
    };
    run_controller(&context, build).await;
}

impl Controller for EndpointSliceController {
    type Key = SliceWork;
    type Error = SliceSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        membership::index_by_membership(&self.services, &self.pods);
        watches.add(&self.services, |_, event, queue| {
            queue.add(SliceWork::Service(ObjectKey::from_object(event.object().as_ref())));
        });
        watches.add(&self.pods, |this, event, queue| {
            let services = membership::services_of_event(&this.services, event);
            services.for_each(|key| queue.add_after(SliceWork::Service(key), this.options.slices_batch_period));
        });
        watches.add(&self.slices, |this, event, queue| {
            let delay = SLICE_CHANGE_DELAY.max(this.options.slices_batch_period);
            this.tracker
                .services_to_sync(event)
                .into_iter()
                .for_each(|key| queue.add_after(SliceWork::Service(key), delay));
        });
        watches.add(&self.nodes, Self::handle_node_event);
    }

    async fn wait_until_ready(self: &Arc<Self>) {
        self.topology.set_nodes(&self.nodes.list());
    }

    async fn sync(&self, work: &SliceWork) -> Result<RequeueAction, SliceSyncError> {
        match work {
            SliceWork::Service(key) => self.sync_service(key).await,
            SliceWork::NodeTopology => {
                let overloaded = self.topology.set_nodes(&self.nodes.list());
                overloaded.into_iter().for_each(|key| self.queue.add(SliceWork::Service(key)));
                Ok(RequeueAction::AwaitChange)
            }
        }
    }
}

impl EndpointSliceController {
    /// Queues the check of the zones when a node appears, disappears, or changes its readiness or zone.
    fn handle_node_event(&self, event: &ResourceEvent<Node>, queue: &WorkQueue<SliceWork>) {
        let zone = |node: &Node| node.labels().get(slice::ZONE_LABEL).cloned();
        let is_relevant = match event {
            ResourceEvent::Updated { old, new } => is_node_ready(old) != is_node_ready(new) || zone(old) != zone(new),
            _ => true,
        };
        if is_relevant {
            queue.add(SliceWork::NodeTopology);
        }
    }

    async fn sync_service(&self, key: &ObjectKey) -> Result<RequeueAction, SliceSyncError> {
        let Some(service) = self.services.get(&key.namespace, &key.name) else {
            self.trigger_times.forget(key);
            self.tracker.forget(key);
            return Ok(RequeueAction::AwaitChange);
        };
        if !membership::has_managed_endpoints(&service) {
            return Ok(RequeueAction::AwaitChange);
        }
        let pods = membership::pods_of_service(&self.pods, &service);
        let mut existing = self.tracker.slices_of_service(&self.slices, key);
        existing.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        if self.tracker.is_stale(key, &existing) {
            return Ok(RequeueAction::Backoff);
        }
        let trigger_time = self.trigger_times.trigger_time(key, &service, &pods);
        let errors = self.reconcile(key, &service, &pods, existing, trigger_time).await;
        if errors.is_empty() {
            return Ok(RequeueAction::AwaitChange);
        }
        let error = SliceSyncError(errors);
        let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
        self.recorder.record_warning(service.object_ref(&()), "FailedToUpdateEndpointSlices", message);
        Err(error)
    }

    /// Writes the slices of every address type of the service and deletes those of other types.
    async fn reconcile(
        &self,
        key: &ObjectKey,
        service: &Service,
        pods: &[Arc<PodView>],
        existing: Vec<Arc<EndpointSlice>>,
        trigger_time: Option<Timestamp>,
    ) -> Vec<String> {
        let node = |name: &str| self.nodes.get("", name);
        let max_endpoints = self.options.max_endpoints_per_slice;
        let mut errors = Vec::new();
        let types = slice::address_types(service);
        for address_type in &types {
            let slices: Vec<_> = existing.iter().filter(|slice| slice.address_type == *address_type).cloned().collect();
            let (mut plan, events) = {
                let mut plan =
                    SliceReconciler { service, pods, node: &node, max_endpoints }.plan(address_type, &slices);
                let events = self.add_hints(key, service, address_type, &mut plan);
                (plan, events)
            };
            errors.append(&mut plan.skipped);
            plan.recycle_slices(service);
            errors.extend(self.write_slices(key, service, plan, trigger_time).await.err());
            events.into_iter().for_each(|event| self.record_hints_event(service, event));
        }
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        for slice in existing.iter().filter(|slice| !types.contains(&slice.address_type.as_str())) {
            self.topology.forget_hints(key, &slice.address_type);
            let name = slice.name_any();
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => self.tracker.expect_deletion(slice),
                Err(error) => errors
                    .push(format!("error deleting {name} EndpointSlice for Service {key}: {}", error.server_message())),
            }
        }
        errors
    }

    /// Adds hints to the planned slices by the topology annotation or the traffic distribution, or removes them.
    fn add_hints(&self, key: &ObjectKey, service: &Service, type_: &str, plan: &mut SlicePlan) -> Option<HintsEvent> {
        if hints::is_topology_aware(service.metadata.annotations.as_ref()) {
            return self.topology.add_hints(key, type_, plan);
        }
        let disabled =
            self.topology.has_hints(key).then(|| HintsEvent::disabled("Topology Aware Hints has been disabled", type_));
        self.topology.forget_hints(key, type_);
        match TrafficDistribution::of_service(service) {
            Some(distribution) => distribution.add_hints(plan),
            None => hints::remove_hints(plan),
        }
        disabled
    }

    fn record_hints_event(&self, service: &Service, event: HintsEvent) {
        let about = service.object_ref(&());
        match event.enabled {
            true => self.recorder.record_normal(about, "TopologyAwareHintsEnabled", event.message),
            false => self.recorder.record_warning(about, "TopologyAwareHintsDisabled", event.message),
        }
    }

    /// Creates, updates and deletes slices. A service that is being deleted gets no new ones.
    async fn write_slices(
        &self,
        key: &ObjectKey,
        service: &Service,
        plan: SlicePlan,
        trigger_time: Option<Timestamp>,
    ) -> Result<(), String> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let create = if service.metadata.deletion_timestamp.is_none() { plan.create } else { Vec::new() };
        for mut slice in create {
            annotate_trigger_time(slice.annotations_mut(), trigger_time);
            match api.create(&PostParams::default(), &slice).await {
                Ok(created) => self.tracker.track(&created),
                Err(error) if error.is_namespace_terminating() => return Ok(()),
                Err(error) => {
                    let reason = error.server_message();
                    return Err(format!("failed to create EndpointSlice for Service {key}: {reason}"));
                }
            }
        }
        for mut slice in plan.update {
            annotate_trigger_time(slice.annotations_mut(), trigger_time);
            let name = slice.name_any();
            let updated = api.replace(&name, &PostParams::default(), &slice).await.map_err(|error| {
                format!("failed to update {name} EndpointSlice for Service {key}: {}", error.server_message())
            })?;
            self.tracker.track(&updated);
        }
        for slice in plan.delete {
            let name = slice.name_any();
            api.delete(&name, &DeleteParams::default()).await.map_err(|error| {
                format!("failed to delete {name} EndpointSlice for Service {key}: {}", error.server_message())
            })?;
            self.tracker.expect_deletion(&slice);
        }
        Ok(())
    }
}

/// Joins error messages as upstream's aggregate of errors does.
fn aggregate_messages(messages: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for message in messages {
        if !distinct.contains(&message.as_str()) {
            distinct.push(message);
        }
    }
    match distinct.as_slice() {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
