//! disruption-controller: keeps the status of PodDisruptionBudgets, which evictions are decided by, and clears stale
//! DisruptionTarget conditions of pods.

mod expected_scale;
mod status;

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::Selector,
};
use serde_json::json;

use self::{
    expected_scale::ScaleFinder,
    status::{
        PodCounts, calculate_status, count_healthy_pods, desired_healthy, fail_safe_status, find_disrupted_pods,
        needs_expected_scale,
    },
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref::{index_by_namespace, objects_in_namespace, selector_matches},
    label_selector_text::LabelSelectorText,
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_view::PodView,
    scale_client::{ScaleClient, ScaleError},
};

/// Time after which the condition of a pod that was not deleted is stale.
const STALE_DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// A key of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum DisruptionKey {
    Budget(ObjectKey),
    /// A pod whose condition DisruptionTarget may be stale.
    StalePod(ObjectKey),
}

/// A PodDisruptionBudget could not be synced.
#[derive(Debug, thiserror::Error)]
enum DisruptionSyncError {
    #[error("{}", .0.server_message())]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Scale(#[from] ScaleError),
    #[error("found no controllers for pod {0:?}")]
    NoController(String),
    #[error("{0} does not implement the scale subresource")]
    NotScalable(String),
    #[error("the selector is invalid")]
    Selector,
}

struct DisruptionController {
    client: Client,
    budgets: SharedInformer<PodDisruptionBudget>,
    pods: SharedInformer<PodView>,
    scale_finder: ScaleFinder,
    recorder: EventRecorder,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| DisruptionController {
        budgets: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        scale_finder: ScaleFinder {
            replication_controllers: context.informers.informer_for(),
            replica_sets: context.informers.informer_for(),
            deployments: context.informers.informer_for(),
            stateful_sets: context.informers.informer_for(),
            scales: ScaleClient::new(context.client.clone()),
        },
        recorder: EventRecorder::new(context.client.clone(), "controllermanager", None),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for DisruptionController {
    type Key = DisruptionKey;
    type Error = DisruptionSyncError;
    const WORKERS: usize = 1;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_by_namespace(&self.pods);
        index_by_namespace(&self.budgets);
        watches.require_cache(&self.scale_finder.replication_controllers);
        watches.require_cache(&self.scale_finder.replica_sets);
        watches.require_cache(&self.scale_finder.deployments);
        watches.require_cache(&self.scale_finder.stateful_sets);
        watches.add(&self.budgets, |_, event, queue| {
            queue.add(DisruptionKey::Budget(ObjectKey::from_object(event.object().as_ref())));
        });
        watches.add(&self.pods, |this, event, queue| {
            let pod = event.object();
            this.budgets_of_pod(pod).into_iter().for_each(|key| queue.add(DisruptionKey::Budget(key)));
            if let Some(delay) = time_until_stale(pod, Timestamp::now())
                && !matches!(event, ResourceEvent::Deleted(_))
            {
                queue.add_after(DisruptionKey::StalePod(ObjectKey::from_object(pod.as_ref())), delay);
            }
        });
    }

    async fn sync(&self, key: &DisruptionKey) -> Result<RequeueAction, DisruptionSyncError> {
        match key {
            DisruptionKey::Budget(key) => self.sync_budget(key).await,
            DisruptionKey::StalePod(key) => self.sync_stale_pod(key).await,
        }
    }
}

impl DisruptionController {
    /// Returns the budgets that select a pod, and warns if there are several.
    fn budgets_of_pod(&self, pod: &PodView) -> Vec<ObjectKey> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
        let matching = objects_in_namespace(&self.budgets, namespace).into_iter().filter(|budget| {
            budget_selector(budget)
                .is_ok_and(|selector| selector.is_some_and(|selector| selector_matches(&selector, &pod.metadata)))
        });
        let matching: Vec<_> = matching.map(|budget| ObjectKey::from_object(budget.as_ref())).collect();
        if let [first, _, ..] = matching.as_slice() {
            let message = format!(
                "Pod {namespace:?}/{:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                pod.name_any(),
                first.name
            );
            self.recorder.record_warning(pod.object_ref(&()), "MultiplePodDisruptionBudgets", message);
        }
        matching
    }

    async fn sync_budget(&self, key: &ObjectKey) -> Result<RequeueAction, DisruptionSyncError> {
        let Some(budget) = self.budgets.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        match self.try_sync_budget(&budget).await {
            Err(DisruptionSyncError::Api(error)) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) => {
                tracing::warn!(?key, %error, "disruption controller: sync failed, no disruption is allowed");
                let status = fail_safe_status(&budget, error.to_string(), Timestamp::now());
                self.write_status(&budget, status).await?;
                Ok(RequeueAction::AwaitChange)
            }
            result => result,
        }
    }

    async fn try_sync_budget(&self, budget: &PodDisruptionBudget) -> Result<RequeueAction, DisruptionSyncError> {
        let about = || budget.object_ref(&());
        let spec = budget.spec.clone().unwrap_or_default();
        let pods = self.pods_of_budget(budget).inspect_err(|error| {
            self.recorder.record_warning(about(), "NoPods", format!("Failed to get pods: {error}"));
        })?;
        if pods.is_empty() {
            self.recorder.record_normal(about(), "NoPods", "No matching pods found");
        }
        let expected = match needs_expected_scale(&spec) {
            true => self.expected_scale(budget, &pods).await?,
            false if spec.min_available.is_some() => i32::try_from(pods.len()).unwrap_or(i32::MAX),
            false => 0,
        };
        let now = Timestamp::now();
        let known = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
        let disrupted = find_disrupted_pods(&pods, known, now);
        let namespace = budget.metadata.namespace.as_deref().unwrap_or("");
        for pod in &disrupted.not_deleted {
            // Upstream names the namespace twice.
            let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            self.recorder.record_warning(pod.object_ref(&()), "NotDeleted", message);
        }
        let counts = PodCounts {
            healthy: count_healthy_pods(&pods, &disrupted.pods, now),
            desired_healthy: desired_healthy(&spec, expected),
            expected,
        };
        let recheck_at = disrupted.recheck_at;
        if let Some(status) = calculate_status(budget, counts, disrupted.pods, now) {
            self.write_status(budget, status).await?;
        }
        let recheck = recheck_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        Ok(recheck.map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }

    fn pods_of_budget(&self, budget: &PodDisruptionBudget) -> Result<Vec<Arc<PodView>>, DisruptionSyncError> {
        let Some(selector) = budget_selector(budget)? else { return Ok(Vec::new()) };
        let pods = objects_in_namespace(&self.pods, budget.metadata.namespace.as_deref().unwrap_or(""));
        Ok(pods.into_iter().filter(|pod| selector_matches(&selector, &pod.metadata)).collect())
    }

    async fn expected_scale(
        &self,
        budget: &PodDisruptionBudget,
        pods: &[Arc<PodView>],
    ) -> Result<i32, DisruptionSyncError> {
        let scale = self.scale_finder.expected_scale(pods).await.inspect_err(|error| {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            self.recorder.record_warning(budget.object_ref(&()), "CalculateExpectedPodCountFailed", message);
        })?;
        if scale.has_unmanaged_pods {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                LabelSelectorText(selector)
            );
            self.recorder.record_warning(budget.object_ref(&()), "UnmanagedPods", message);
        }
        Ok(scale.replicas)
    }

    async fn write_status(
        &self,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), kube::Error> {
        let namespace = budget.metadata.namespace.as_deref().unwrap_or("");
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let update = PodDisruptionBudget { status: Some(status), ..budget.clone() };
        api.replace_status(&budget.name_any(), &PostParams::default(), &update).await.map(drop)
    }

    /// Sets the condition DisruptionTarget of a pod that was not deleted after all to false.
    async fn sync_stale_pod(&self, key: &ObjectKey) -> Result<RequeueAction, DisruptionSyncError> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        let now = Timestamp::now();
        match time_until_stale(&pod, now) {
            None => return Ok(RequeueAction::AwaitChange),
            Some(Duration::ZERO) => {}
            Some(delay) => return Ok(RequeueAction::After(delay)),
        }
        let cleared = json!({"type": "DisruptionTarget", "status": "False", "lastTransitionTime": Time(now),
            "observedGeneration": pod.metadata.generation, "reason": null, "message": null});
        let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
        let patch = Patch::Strategic(json!({"metadata": metadata, "status": {"conditions": [cleared]}}));
        let api: Api<PodView> = Api::namespaced(self.client.clone(), &key.namespace);
        api.patch_status(&key.name, &PatchParams::default(), &patch).await?;
        Ok(RequeueAction::AwaitChange)
    }
}

/// Parses the selector. An absent one selects nothing, an empty one everything.
fn budget_selector(budget: &PodDisruptionBudget) -> Result<Option<Selector>, DisruptionSyncError> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    selector.map(|selector| Selector::try_from(selector).map_err(|_| DisruptionSyncError::Selector)).transpose()
}

/// Returns the time until the pod's condition DisruptionTarget is stale; `None` if it has none that can become stale.
fn time_until_stale(pod: &PodView, now: Timestamp) -> Option<Duration> {
    if pod.metadata.deletion_timestamp.is_some() || is_pod_terminal(pod) {
        return None;
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget")?;
    // The kubelet may take any time until it deletes the pod.
    if condition.status != "True" || condition.reason.as_deref() == Some("TerminationByKubelet") {
        return None;
    }
    let since = condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(Duration::try_from(STALE_DISRUPTION_TIMEOUT - now.duration_since(since)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn disruption_condition_becomes_stale_unless_the_pod_ends() {
        let check = |phase: &str, reason: &str, since: &str, expected: Option<u64>| {
            let condition =
                json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": since});
            let pod = json!({"metadata": {}, "status": {"phase": phase, "conditions": [condition]}});
            let pod = serde_json::from_value(pod).unwrap();
            let left = time_until_stale(&pod, "2030-01-01T00:10:00Z".parse().unwrap());
            assert_eq!(left, expected.map(Duration::from_secs));
        };
        check("Running", "EvictionByEvictionAPI", "2030-01-01T00:09:00Z", Some(60));
        check("Running", "EvictionByEvictionAPI", "2030-01-01T00:01:00Z", Some(0));
        check("Running", "TerminationByKubelet", "2030-01-01T00:01:00Z", None);
        check("Failed", "EvictionByEvictionAPI", "2030-01-01T00:01:00Z", None);
    }
}
