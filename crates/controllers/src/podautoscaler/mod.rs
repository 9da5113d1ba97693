//! horizontal-pod-autoscaler-controller: scales targets to what their metrics ask for.

mod behavior;
mod conditions;
mod metric_proposal;
mod metrics_client;
mod pod_requests;
mod reconcile;
mod replica_calculator;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use api::selector::LabelSelector as QuerySelector;
use client::{EventRecorder, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Client;

use self::{behavior::ScaleHistory, metrics_client::MetricsClient, reconcile::AutoscalerSync};
use crate::{
    ControllerContext, HorizontalPodAutoscalerOptions,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref::index_by_namespace,
    object_key::ObjectKey,
    pod_view::PodView,
    scale_client::ScaleClient,
};

/// Metrics could not be read or evaluated.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct MetricsError(String);

impl MetricsError {
    /// Prefixes the message.
    fn context(&self, context: &str) -> Self {
        Self(format!("{context}: {}", self.0))
    }
}

/// In-memory state of one HorizontalPodAutoscaler.
#[derive(Default)]
struct AutoscalerRecord {
    history: ScaleHistory,
    /// Selector of the target, once it is known.
    selector: Option<QuerySelector>,
}

struct HorizontalPodAutoscalerController {
    client: Client,
    autoscalers: SharedInformer<HorizontalPodAutoscaler>,
    pods: SharedInformer<PodView>,
    metrics: MetricsClient,
    scales: ScaleClient,
    records: Mutex<HashMap<ObjectKey, AutoscalerRecord>>,
    options: HorizontalPodAutoscalerOptions,
    recorder: EventRecorder,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| HorizontalPodAutoscalerController {
        autoscalers: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        metrics: MetricsClient::new(context.client.clone()),
        scales: ScaleClient::new(context.client.clone()),
        records: Mutex::default(),
        options: context.options.horizontal_pod_autoscaler.clone(),
        recorder: EventRecorder::new(context.client.clone(), "horizontal-pod-autoscaler", None),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for HorizontalPodAutoscalerController {
    type Key = ObjectKey;
    type Error = MetricsError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_by_namespace(&self.pods);
        watches.require_cache(&self.pods);
        watches.add(&self.autoscalers, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref());
            if let ResourceEvent::Deleted(_) = event {
                this.lock_records().remove(&key);
                return;
            }
            this.lock_records().entry(key.clone()).or_default();
            // An autoscaler is evaluated once per period, whatever happens.
            queue.add_after(key, this.options.sync_period);
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, MetricsError> {
        let Some(autoscaler) = self.autoscalers.get(&key.namespace, &key.name) else {
            self.lock_records().remove(key);
            return Ok(RequeueAction::AwaitChange);
        };
        if let Err(error) = AutoscalerSync::new(self, key, (*autoscaler).clone()).reconcile().await {
            tracing::debug!(?key, %error, "horizontal pod autoscaler: evaluation failed, retried after the period");
        }
        Ok(RequeueAction::After(self.options.sync_period))
    }
}

impl HorizontalPodAutoscalerController {
    fn lock_records(&self) -> MutexGuard<'_, HashMap<ObjectKey, AutoscalerRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
