//! endpoints-controller: maintains the Endpoints object of every service with a selector.

mod desired;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_view::PodView,
    service_endpoints::{LEADER_ANNOTATION, membership, trigger_time::TriggerTimeTracker},
};

struct EndpointsController {
    client: Client,
    services: SharedInformer<Service>,
    pods: SharedInformer<PodView>,
    endpoints: SharedInformer<Endpoints>,
    trigger_times: TriggerTimeTracker,
    /// Resource versions that this controller has replaced.
    stale_versions: Mutex<HashMap<ObjectKey, String>>,
    recorder: EventRecorder,
    queue: WorkQueue<ObjectKey>,
    batch_period: Duration,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |queue| EndpointsController {
        services: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        endpoints: context.informers.informer_for(),
        trigger_times: TriggerTimeTracker::default(),
        stale_versions: Mutex::default(),
        recorder: EventRecorder::new(context.client.clone(), desired::MANAGER, None),
        batch_period: context.options.endpoints.endpoints_batch_period,
        client: context.client.clone(),
        queue,
    };
    run_controller(&context, build).await;
}

impl Controller for EndpointsController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        membership::index_by_membership(&self.services, &self.pods);
        watches.add(&self.services, |_, event, queue| queue.add(ObjectKey::from_object(event.object().as_ref())));
        watches.add(&self.pods, |this, event, queue| {
            let services = membership::services_of_event(&this.services, event);
            services.for_each(|key| queue.add_after(key, this.batch_period));
        });
        watches.add(&self.endpoints, |_, event, queue| {
            if let ResourceEvent::Deleted(endpoints) = event {
                queue.add(ObjectKey::from_object(endpoints.as_ref()));
            }
        });
    }

    /// Queues the Endpoints whose service may have been deleted while no controller ran.
    async fn wait_until_ready(self: &Arc<Self>) {
        let leftover = self.endpoints.list().into_iter();
        let leftover = leftover.filter(|endpoints| !endpoints.annotations().contains_key(LEADER_ANNOTATION));
        leftover.for_each(|endpoints| self.queue.add(ObjectKey::from_object(endpoints.as_ref())));
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        self.sync_service(key).await
    }
}

impl EndpointsController {
    async fn sync_service(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(service) = self.services.get(&key.namespace, &key.name) else {
            self.trigger_times.forget(key);
            self.lock_stale_versions().remove(key);
            return match api.delete(&key.name, &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(RequeueAction::AwaitChange),
            };
        };
        if !membership::has_managed_endpoints(&service) {
            return Ok(RequeueAction::AwaitChange);
        }
        let pods = membership::pods_of_service(&self.pods, &service);
        let trigger_time = self.trigger_times.trigger_time(key, &service, &pods);
        let current = self.endpoints.get(&key.namespace, &key.name);
        let version = current.as_ref().and_then(|current| current.metadata.resource_version.clone());
        if version.is_some() && self.lock_stale_versions().get(key) == version.as_ref() {
            return Ok(RequeueAction::Backoff);
        }
        let Some(endpoints) = desired::desired_endpoints(&service, &pods, current.as_deref(), trigger_time) else {
            return Ok(RequeueAction::AwaitChange);
        };
        let written = match current {
            None => api.create(&PostParams::default(), &endpoints).await,
            Some(_) => api.replace(&key.name, &PostParams::default(), &endpoints).await,
        };
        match (written, version) {
            (Ok(_), None) => Ok(RequeueAction::AwaitChange),
            (Ok(updated), Some(version)) => {
                if updated.metadata.resource_version.as_ref() != Some(&version) {
                    self.lock_stale_versions().insert(key.clone(), version);
                }
                Ok(RequeueAction::AwaitChange)
            }
            (Err(error), None) if error.is_namespace_terminating() => Ok(RequeueAction::AwaitChange),
            (Err(error), version) => {
                self.record_failure(key, &endpoints, version.is_none(), &error);
                Err(error)
            }
        }
    }

    fn record_failure(&self, key: &ObjectKey, endpoints: &Endpoints, created: bool, error: &kube::Error) {
        let (reason, action) = match created {
            true => ("FailedToCreateEndpoint", "create endpoint for service"),
            false => ("FailedToUpdateEndpoint", "update endpoint"),
        };
        let message = format!("Failed to {action} {key}: {}", error.server_message());
        self.recorder.record_warning(endpoints.object_ref(&()), reason, message);
    }

    fn lock_stale_versions(&self) -> MutexGuard<'_, HashMap<ObjectKey, String>> {
        self.stale_versions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
