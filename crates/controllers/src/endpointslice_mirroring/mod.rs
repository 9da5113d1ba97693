//! endpointslice-mirroring-controller: mirrors Endpoints of services without a selector to EndpointSlices.

mod mirror;

use std::time::Duration;

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use self::mirror::MirrorPlan;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    service_endpoints::{membership::has_selector, slice_tracker::EndpointSliceTracker},
};

struct MirroringController {
    client: Client,
    endpoints: SharedInformer<Endpoints>,
    slices: SharedInformer<EndpointSlice>,
    services: SharedInformer<Service>,
    tracker: EndpointSliceTracker,
    recorder: EventRecorder,
    batch_period: Duration,
    max_endpoints: usize,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let slices = context.informers.informer_for();
    let build = |_| MirroringController {
        endpoints: context.informers.informer_for(),
        services: context.informers.informer_for(),
        tracker: EndpointSliceTracker::new(mirror::MANAGER, &slices),
        slices,
        recorder: EventRecorder::new(context.client.clone(), "endpoint-slice-mirroring-controller", None),
        batch_period: context.options.endpoints.mirroring_batch_period,
        max_endpoints: context.options.endpoints.mirroring_max_endpoints_per_subset,
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for MirroringController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.endpoints, |_, event, queue| {
            let before = matches!(event, ResourceEvent::Updated { old, .. } if mirror::should_mirror(old));
            if before || mirror::should_mirror(event.object()) {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
        watches.add(&self.services, |_, event, queue| {
            let is_relevant = match event {
                ResourceEvent::Updated { old, new } => has_selector(old) != has_selector(new),
                ResourceEvent::Added(service) | ResourceEvent::Deleted(service) => !has_selector(service),
            };
            if is_relevant {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
        watches.add(&self.slices, |this, event, queue| {
            let keys = this.tracker.services_to_sync(event);
            keys.into_iter().for_each(|key| queue.add_after(key, this.batch_period));
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        self.sync_endpoints(key).await
    }
}

impl MirroringController {
    async fn sync_endpoints(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let endpoints = self.endpoints.get(&key.namespace, &key.name).filter(|all| mirror::should_mirror(all));
        let service = self.services.get(&key.namespace, &key.name).filter(|service| !has_selector(service));
        let slices = self.tracker.slices_of_service(&self.slices, key);
        let (Some(endpoints), Some(_)) = (endpoints, service) else {
            self.tracker.forget(key);
            return self.delete_slices(key, &slices).await;
        };
        if self.tracker.is_stale(key, &slices) {
            return Ok(RequeueAction::Backoff);
        }
        let plan = mirror::plan_slices(&endpoints, &slices, self.max_endpoints);
        self.record_skipped(&endpoints, &plan);
        for slice in plan.unchanged.iter().filter(|slice| !self.tracker.is_tracked(slice)) {
            self.tracker.track(slice);
        }
        self.write_slices(key, &endpoints, plan).await
    }

    fn record_skipped(&self, endpoints: &Endpoints, plan: &MirrorPlan) {
        let about = || endpoints.object_ref(&());
        if plan.invalid > 0 {
            let message = format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", plan.invalid);
            self.recorder.record_warning(about(), "InvalidIPAddress", message);
        }
        if plan.skipped > plan.invalid {
            let message = format!(
                "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                self.max_endpoints, plan.skipped
            );
            self.recorder.record_warning(about(), "TooManyAddressesToMirror", message);
        }
    }

    async fn write_slices(
        &self,
        key: &ObjectKey,
        endpoints: &Endpoints,
        plan: MirrorPlan,
    ) -> Result<RequeueAction, kube::Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let create = if endpoints.metadata.deletion_timestamp.is_none() { plan.create } else { Vec::new() };
        for slice in create {
            match api.create(&PostParams::default(), &slice).await {
                Ok(created) => self.tracker.track(&created),
                Err(error) if error.is_namespace_terminating() => return Ok(RequeueAction::AwaitChange),
                Err(error) => return Err(error),
            }
        }
        for slice in plan.update {
            self.tracker.track(&api.replace(&slice.name_any(), &PostParams::default(), &slice).await?);
        }
        for slice in plan.delete {
            api.delete(&slice.name_any(), &DeleteParams::default()).await?;
            self.tracker.expect_deletion(&slice);
        }
        Ok(RequeueAction::AwaitChange)
    }

    async fn delete_slices(
        &self,
        key: &ObjectKey,
        slices: &[std::sync::Arc<EndpointSlice>],
    ) -> Result<RequeueAction, kube::Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        for slice in slices {
            match api.delete(&slice.name_any(), &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(RequeueAction::AwaitChange)
    }
}
