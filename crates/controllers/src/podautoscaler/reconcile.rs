//! One evaluation of an autoscaler: reads the target's scale, evaluates the metrics, and writes scale and status.

use std::sync::Arc;

use api::quantity::Quantity;
use api::selector::LabelSelector as QuerySelector;
use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::{
        v1::Scale,
        v2::{HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, PostParams},
};

use super::{
    HorizontalPodAutoscalerController, MetricsError,
    behavior::{ReplicaBounds, limit_by_bounds},
    conditions::{is_same_status, remove_condition, set_condition, set_counts},
    metric_proposal::{MetricEvaluation, MetricFailure, MetricProposal},
    replica_calculator::{ReplicaCalculator, Tolerances},
};
use crate::{
    conflict_retry::{ConflictRetry, DEFAULT_RETRY},
    controller_ref::objects_in_namespace,
    object_key::ObjectKey,
    pod_view::PodView,
    scale_client::{ScaleError, parse_group_version},
};

const ABLE_TO_SCALE: &str = "AbleToScale";
const SCALING_ACTIVE: &str = "ScalingActive";
const SCALING_LIMITED: &str = "ScalingLimited";
const SCALED_TO_ZERO: &str = "ScaledToZero";

/// An autoscaler in an evaluation.
pub(super) struct AutoscalerSync<'a> {
    controller: &'a HorizontalPodAutoscalerController,
    key: &'a ObjectKey,
    autoscaler: HorizontalPodAutoscaler,
    original: HorizontalPodAutoscalerStatus,
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

/// The target of an autoscaler.
struct ScaleTarget {
    resource: ApiResource,
    scale: Scale,
}

/// The size that was decided on.
#[derive(Default)]
struct ScaleDecision {
    desired: i32,
    reason: String,
    metrics: Option<Vec<MetricStatus>>,
    /// A metric failed, but others sufficed.
    failure: Option<MetricsError>,
}

/// Proposals of all metrics.
struct MetricsOutcome {
    best: Option<(i32, String)>,
    statuses: Vec<MetricStatus>,
    failure: Option<MetricsError>,
}

impl<'a> AutoscalerSync<'a> {
    pub(super) fn new(
        controller: &'a HorizontalPodAutoscalerController,
        key: &'a ObjectKey,
        mut autoscaler: HorizontalPodAutoscaler,
    ) -> Self {
        let original = autoscaler.status.take().unwrap_or_default();
        Self { controller, key, autoscaler, status: original.clone(), original, now: Timestamp::now() }
    }

    /// Evaluates the autoscaler.
    pub(super) async fn reconcile(mut self) -> Result<(), MetricsError> {
        let target = match self.find_target().await {
            Ok(target) => target,
            Err(error) => {
                let message = error.to_string();
                self.record_warning("FailedGetScale", message.clone());
                let condition = format!("the HPA controller was unable to get the target's current scale: {message}");
                set_condition(&mut self.status, (ABLE_TO_SCALE, false), "FailedGetScale", condition);
                self.write_status().await?;
                return Err(MetricsError(message));
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        set_condition(&mut self.status, (ABLE_TO_SCALE, true), "SucceededGetScale", message);
        let current = spec_replicas(&target.scale);
        self.controller.lock_records().entry(self.key.clone()).or_default().history.record_initial(current, self.now);

        let decision = match self.decide(&target.scale).await {
            Ok(decision) => decision,
            Err((error, metrics)) => {
                let desired = self.status.desired_replicas;
                set_counts(&mut self.status, current, desired, metrics);
                self.write_status().await?;
                self.record_warning("FailedComputeMetricsReplicas", error.to_string());
                return Err(error);
            }
        };
        let rescales = decision.desired != current;
        if rescales {
            self.rescale(target, &decision).await?;
        }
        set_counts(&mut self.status, current, decision.desired, decision.metrics);
        if rescales {
            self.status.last_scale_time = Some(Time(self.now));
        }
        self.write_status().await?;
        decision.failure.map_or(Ok(()), Err)
    }

    fn record_warning(&self, reason: &str, message: String) {
        self.controller.recorder.record_warning(self.autoscaler.object_ref(&()), reason, message);
    }

    async fn find_target(&self) -> Result<ScaleTarget, ScaleError> {
        let reference = &self.autoscaler.spec.scale_target_ref;
        let (group, _) = parse_group_version(reference.api_version.as_deref().unwrap_or(""))?;
        let scales = &self.controller.scales;
        let mut first_error = None;
        for found in scales.resources_of_kind(group, &reference.kind).await? {
            match scales.get_scale(&found.resource, &self.key.namespace, &reference.name).await {
                Ok(scale) => return Ok(ScaleTarget { resource: found.resource, scale }),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let none = || ScaleError::NoMatch { kind: reference.kind.clone(), scope: format!("group {group:?}") };
        Err(first_error.unwrap_or_else(none))
    }

    /// Decides on the size: bounds first, then metrics. A failure comes with the statuses of the metrics.
    async fn decide(&mut self, scale: &Scale) -> Result<ScaleDecision, (MetricsError, Option<Vec<MetricStatus>>)> {
        let spec = &self.autoscaler.spec;
        let bounds = ReplicaBounds {
            current: spec_replicas(scale),
            min: spec.min_replicas.unwrap_or(1),
            max: spec.max_replicas,
        };
        if bounds.current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            set_condition(&mut self.status, (SCALING_ACTIVE, false), "ScalingDisabled", message);
            remove_condition(&mut self.status, SCALED_TO_ZERO);
            return Ok(ScaleDecision::default());
        }
        if bounds.current > bounds.max {
            let reason = "Current number of replicas above Spec.MaxReplicas".into();
            return Ok(ScaleDecision { desired: bounds.max, reason, ..Default::default() });
        }
        if bounds.current < bounds.min {
            let reason = "Current number of replicas below Spec.MinReplicas".into();
            return Ok(ScaleDecision { desired: bounds.min, reason, ..Default::default() });
        }
        let outcome = self.evaluate_metrics(scale).await.map_err(|error| (error, None))?;
        let Some((proposed, metric)) = outcome.best else {
            return Err((outcome.failure.unwrap_or(MetricsError(String::new())), Some(outcome.statuses)));
        };
        let proposed = proposed.max(0);
        let reason = match proposed {
            _ if proposed > bounds.current => format!("{metric} above target"),
            _ if proposed < bounds.current => "All metrics below target".into(),
            _ => String::new(),
        };
        let desired = self.normalize(bounds, proposed);
        Ok(ScaleDecision { desired, reason, metrics: Some(outcome.statuses), failure: outcome.failure })
    }

    /// Evaluates all metrics; the highest proposal wins. There is none if all fail, or some fail and the others would
    /// scale down.
    async fn evaluate_metrics(&mut self, scale: &Scale) -> Result<MetricsOutcome, MetricsError> {
        let selector = scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or("").to_owned();
        let pods = self.select_pods(&selector)?;
        let controller = self.controller;
        let evaluation = MetricEvaluation {
            metrics: &controller.metrics,
            scales: &controller.scales,
            calculator: ReplicaCalculator {
                pods,
                tolerances: self.tolerances(),
                cpu_initialization_period: controller.options.cpu_initialization_period,
                initial_readiness_delay: controller.options.initial_readiness_delay,
                now: self.now,
            },
            namespace: &self.key.namespace,
            selector: &selector,
            spec_replicas: spec_replicas(scale),
            status_replicas: scale.status.as_ref().map_or(0, |status| status.replicas),
        };
        let specs = self.autoscaler.spec.metrics.clone().unwrap_or_default();
        let (mut best, mut statuses, mut failures) = (None::<(i32, String)>, Vec::new(), Vec::new());
        for spec in &specs {
            match evaluation.evaluate(spec).await {
                Ok(MetricProposal { replicas, name, status }) => {
                    statuses.push(status);
                    if best.as_ref().is_none_or(|(highest, _)| *highest == 0 || replicas > *highest) {
                        best = Some((replicas, name));
                    }
                }
                Err(failure) => {
                    self.record_warning(failure.reason, failure.error.to_string());
                    statuses.push(MetricStatus::default());
                    failures.push(failure);
                }
            }
        }
        let report = failures.first().map(|first| {
            let (invalid, all) = (failures.len(), specs.len());
            let first = &first.report;
            MetricsError(format!("invalid metrics ({invalid} invalid out of {all}), first error is: {first}"))
        });
        let best = best.filter(|(replicas, _)| failures.is_empty() || *replicas >= evaluation.spec_replicas);
        self.set_active_condition(best.as_ref().map(|(_, metric)| metric.as_str()), failures.first());
        Ok(MetricsOutcome { best, statuses, failure: report })
    }

    fn set_active_condition(&mut self, metric: Option<&str>, failure: Option<&MetricFailure>) {
        match (metric, failure) {
            (Some(metric), _) => {
                let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
                set_condition(&mut self.status, (SCALING_ACTIVE, true), "ValidMetricFound", message);
            }
            (None, Some(failure)) => {
                let message = format!("the HPA was unable to compute the replica count: {}", failure.error);
                set_condition(&mut self.status, (SCALING_ACTIVE, false), failure.reason, message);
            }
            (None, None) => {}
        }
    }

    /// Returns the pods of the target, after checking that no other autoscaler controls them.
    fn select_pods(&mut self, selector: &str) -> Result<Vec<Arc<PodView>>, MetricsError> {
        if selector.is_empty() {
            let condition = "the HPA target's scale is missing a selector";
            return Err(self.refuse_selector("SelectorRequired", "InvalidSelector", "selector is required", condition));
        }
        let parsed = match QuerySelector::parse(selector) {
            Ok(parsed) => parsed,
            Err(error) => {
                let message =
                    format!("couldn't convert selector into a corresponding internal selector object: {error}");
                return Err(self.refuse_selector("InvalidSelector", "InvalidSelector", &message, &message));
            }
        };
        let in_namespace = objects_in_namespace(&self.controller.pods, &self.key.namespace);
        let pods: Vec<_> = in_namespace.into_iter().filter(|pod| selects_pod(&parsed, pod)).collect();
        let mut controlling = Vec::new();
        {
            let mut records = self.controller.lock_records();
            if let Some(record) = records.get_mut(self.key) {
                record.selector = Some(parsed);
            }
            for (key, record) in records.iter().filter(|(key, _)| key.namespace == self.key.namespace) {
                let selects = |selector: &QuerySelector| pods.iter().any(|pod| selects_pod(selector, pod));
                if record.selector.as_ref().is_some_and(selects) {
                    controlling.push(key.to_string());
                }
            }
        }
        if controlling.len() > 1 {
            controlling.sort();
            let keys = controlling.join(" ");
            let message = format!("pods by selector {selector} are controlled by multiple HPAs: [{keys}]");
            return Err(self.refuse_selector("AmbiguousSelector", "AmbiguousSelector", &message, &message));
        }
        Ok(pods)
    }

    fn refuse_selector(&mut self, event: &str, reason: &str, message: &str, condition: &str) -> MetricsError {
        self.record_warning(event, message.into());
        set_condition(&mut self.status, (SCALING_ACTIVE, false), reason, condition);
        MetricsError(message.into())
    }

    fn tolerances(&self) -> Tolerances {
        let behavior = self.autoscaler.spec.behavior.clone().unwrap_or_default();
        let tolerance = |rules: Option<HPAScalingRules>| {
            let quantity = rules.and_then(|rules| rules.tolerance).and_then(|text| Quantity::parse(&text.0));
            quantity.map_or(self.controller.options.tolerance, Quantity::as_approximate_float)
        };
        Tolerances { scale_down: tolerance(behavior.scale_down), scale_up: tolerance(behavior.scale_up) }
    }

    /// Applies stabilization, policies and bounds to a proposal.
    fn normalize(&mut self, bounds: ReplicaBounds, proposed: i32) -> i32 {
        let window = self.controller.options.downscale_stabilization;
        let (stabilized, limited) = {
            let mut records = self.controller.lock_records();
            let history = &mut records.entry(self.key.clone()).or_default().history;
            match &self.autoscaler.spec.behavior {
                None => {
                    let stabilized = history.stabilize(proposed, window, self.now);
                    (stabilized, limit_by_bounds(bounds, stabilized.replicas))
                }
                Some(behavior) => {
                    let stabilized =
                        history.stabilize_with_behavior(behavior, bounds.current, proposed, window, self.now);
                    let limited = history.limit_by_behavior(behavior, bounds, stabilized.replicas, self.now);
                    (stabilized, limited)
                }
            }
        };
        set_condition(&mut self.status, (ABLE_TO_SCALE, true), stabilized.reason, stabilized.message);
        let is_limited = limited.replicas != stabilized.replicas;
        set_condition(&mut self.status, (SCALING_LIMITED, is_limited), limited.reason, limited.message);
        limited.replicas
    }

    async fn rescale(&mut self, target: ScaleTarget, decision: &ScaleDecision) -> Result<(), MetricsError> {
        let (current, desired, reason) = (spec_replicas(&target.scale), decision.desired, &decision.reason);
        if let Err(error) = self.update_scale(target, desired).await {
            self.record_warning("FailedRescale", format!("New size: {desired}; reason: {reason}; error: {error}"));
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            set_condition(&mut self.status, (ABLE_TO_SCALE, false), "FailedUpdateScale", message);
            let last_desired = self.status.desired_replicas;
            set_counts(&mut self.status, current, last_desired, decision.metrics.clone());
            self.write_status().await?;
            return Err(MetricsError(error.to_string()));
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        set_condition(&mut self.status, (ABLE_TO_SCALE, true), "SucceededRescale", message);
        let message = format!("New size: {desired}; reason: {reason}");
        self.controller.recorder.record_normal(self.autoscaler.object_ref(&()), "SuccessfulRescale", message);
        if let Some(behavior) = &self.autoscaler.spec.behavior {
            let mut records = self.controller.lock_records();
            let history = &mut records.entry(self.key.clone()).or_default().history;
            history.record_scaling(behavior, current, desired, self.now);
        }
        remove_condition(&mut self.status, SCALED_TO_ZERO);
        Ok(())
    }

    /// Writes the scale, on its latest version after a conflict.
    async fn update_scale(&self, target: ScaleTarget, desired: i32) -> Result<(), ScaleError> {
        let ScaleTarget { resource, mut scale } = target;
        let (scales, namespace) = (&self.controller.scales, &self.key.namespace);
        let mut retry = ConflictRetry::new(DEFAULT_RETRY);
        loop {
            scale.spec.get_or_insert_default().replicas = Some(desired);
            let Err(error) = scales.update_scale(&resource, namespace, &scale).await else { return Ok(()) };
            let is_conflict = matches!(&error, ScaleError::Api(error) if error.is_conflict());
            if !retry.wait_for_retry(is_conflict).await {
                return Err(error);
            }
            scale = scales.get_scale(&resource, namespace, &scale.name_any()).await?;
        }
    }

    async fn write_status(&mut self) -> Result<(), MetricsError> {
        if is_same_status(&self.original, &self.status) {
            return Ok(());
        }
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.controller.client.clone(), &self.key.namespace);
        let update = HorizontalPodAutoscaler { status: Some(self.status.clone()), ..self.autoscaler.clone() };
        match api.replace_status(&self.key.name, &PostParams::default(), &update).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = error.server_message();
                self.record_warning("FailedUpdateStatus", message.clone());
                Err(MetricsError(message).context(&format!("failed to update status for {}", self.key.name)))
            }
        }
    }
}

fn spec_replicas(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

fn selects_pod(selector: &QuerySelector, pod: &PodView) -> bool {
    selector.matches_by(|key| pod.labels().get(key).map(String::as_str))
}
