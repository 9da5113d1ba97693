//! The replica count that one metric of an autoscaler proposes, and the metric's status.

use k8s_openapi::{
    api::autoscaling::v2::{
        ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, MetricSpec, MetricStatus,
        MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource, PodsMetricStatus,
        ResourceMetricStatus,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{
    MetricsError,
    metrics_client::MetricsClient,
    pod_requests::{millis_quantity, quantity_millis},
    replica_calculator::ReplicaCalculator,
};
use crate::{label_selector_text::LabelSelectorText, scale_client::ScaleClient};

/// Inputs that all metrics of an autoscaler share.
pub(super) struct MetricEvaluation<'a> {
    pub(super) metrics: &'a MetricsClient,
    pub(super) scales: &'a ScaleClient,
    pub(super) calculator: ReplicaCalculator,
    pub(super) namespace: &'a str,
    /// The selector of the scale, in query form.
    pub(super) selector: &'a str,
    pub(super) spec_replicas: i32,
    pub(super) status_replicas: i32,
}

/// A metric's proposal.
#[derive(Debug)]
pub(super) struct MetricProposal {
    pub(super) replicas: i32,
    /// The metric's name in conditions and events.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// A metric without a proposal.
#[derive(Debug)]
pub(super) struct MetricFailure {
    /// Reason of the condition and the event.
    pub(super) reason: &'static str,
    /// Message of the condition and the event.
    pub(super) error: MetricsError,
    /// The error that the autoscaler reports for all metrics.
    pub(super) report: MetricsError,
}

impl MetricEvaluation<'_> {
    /// Evaluates one metric.
    pub(super) async fn evaluate(&self, spec: &MetricSpec) -> Result<MetricProposal, MetricFailure> {
        match (spec.type_.as_str(), spec) {
            ("Resource", MetricSpec { resource: Some(source), .. }) => {
                self.evaluate_resource(&source.target, &source.name, None).await.map_err(|error| MetricFailure {
                    reason: "FailedGetResourceMetric",
                    report: error.context(&format!("failed to get {} resource metric value", source.name)),
                    error,
                })
            }
            ("ContainerResource", MetricSpec { container_resource: Some(source), .. }) => {
                let container = Some(source.container.as_str());
                self.evaluate_resource(&source.target, &source.name, container).await.map_err(|error| MetricFailure {
                    reason: "FailedGetContainerResourceMetric",
                    report: error.context(&format!("failed to get {} container metric value", source.container)),
                    error,
                })
            }
            ("Pods", MetricSpec { pods: Some(source), .. }) => {
                self.evaluate_pods(source).await.map_err(|error| MetricFailure {
                    reason: "FailedGetPodsMetric",
                    report: error.context("failed to get pods metric value"),
                    error,
                })
            }
            ("Object", MetricSpec { object: Some(source), .. }) => self.evaluate_object(source).await,
            ("External", MetricSpec { external: Some(source), .. }) => self.evaluate_external(source).await,
            (type_, _) => {
                let error = MetricsError(format!("unknown metric source type {type_:?}"));
                Err(MetricFailure { reason: "InvalidMetricSourceType", report: error.clone(), error })
            }
        }
    }

    async fn evaluate_resource(
        &self,
        target: &MetricTarget,
        resource: &str,
        container: Option<&str>,
    ) -> Result<MetricProposal, MetricsError> {
        let measure = match (&target.average_value, target.average_utilization) {
            (Some(_), _) => "usage",
            (None, Some(_)) => "utilization",
            (None, None) => {
                let message = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
                return Err(MetricsError(message.into()));
            }
        };
        let context = format!("failed to get {resource} {measure}");
        let samples = self.metrics.resource_metrics(self.namespace, self.selector, resource, container).await;
        let samples = samples.map_err(|error| {
            error.context(&format!("unable to get metrics for resource {resource}")).context(&context)
        })?;
        let is_memory = resource == "memory";
        let (replicas, name, current) = match (&target.average_value, target.average_utilization) {
            (Some(target), _) => {
                let target = quantity_millis(target).unwrap_or(0);
                let proposal = self.calculator.average_value_replicas(self.spec_replicas, target, samples, resource);
                let (replicas, usage) = proposal.map_err(|error| error.context(&context))?;
                let average_value = Some(millis_quantity(usage, is_memory));
                let current = MetricValueStatus { average_value, ..Default::default() };
                (replicas, format!("{resource} resource"), current)
            }
            (None, target) => {
                let source = (resource, container);
                let target = target.unwrap_or(0);
                let proposal = self.calculator.utilization_replicas(self.spec_replicas, target, samples, source);
                let proposal = proposal.map_err(|error| error.context(&context))?;
                let kind = if container.is_some() { "container resource" } else { "resource" };
                let current = MetricValueStatus {
                    average_utilization: Some(proposal.utilization),
                    average_value: Some(millis_quantity(proposal.average, is_memory)),
                    value: None,
                };
                let name = format!("{resource} {kind} utilization (percentage of request)");
                (proposal.replicas, name, current)
            }
        };
        Ok(MetricProposal { replicas, name, status: resource_status(resource, container, current) })
    }

    async fn evaluate_pods(&self, source: &PodsMetricSource) -> Result<MetricProposal, MetricsError> {
        let name = &source.metric.name;
        let metric_selector = selector_query(source.metric.selector.as_ref());
        let samples = self.metrics.pods_metrics(self.scales, self.namespace, self.selector, (name, &metric_selector));
        let samples = samples.await.map_err(|error| error.context(&format!("unable to get metric {name}")))?;
        let target = source.target.average_value.as_ref().and_then(quantity_millis).unwrap_or(0);
        let (replicas, usage) = self.calculator.average_value_replicas(self.spec_replicas, target, samples, "")?;
        let pods = PodsMetricStatus {
            metric: source.metric.clone(),
            current: MetricValueStatus { average_value: Some(millis_quantity(usage, false)), ..Default::default() },
        };
        let status = MetricStatus { type_: "Pods".into(), pods: Some(pods), ..Default::default() };
        Ok(MetricProposal { replicas, name: format!("pods metric {name}"), status })
    }

    async fn evaluate_object(&self, source: &ObjectMetricSource) -> Result<MetricProposal, MetricFailure> {
        let (name, object) = (&source.metric.name, &source.described_object);
        let failure = |error: MetricsError, report: MetricsError| MetricFailure {
            reason: "FailedGetObjectMetric",
            report: report.context("failed to get object metric value"),
            error,
        };
        let per_pod_failure = |error: MetricsError| {
            let report = error.context(&format!("failed to get {name} object metric"));
            failure(error, report)
        };
        let value_failure = |error: MetricsError| failure(error.clone(), error);
        let metric_selector = selector_query(source.metric.selector.as_ref());
        let usage = || async {
            let usage = self.metrics.object_metric(self.scales, self.namespace, object, (name, &metric_selector)).await;
            // Upstream mixes up the order of the arguments.
            let (kind, namespace, object) = (&object.kind, self.namespace, &object.name);
            usage.map_err(|error| {
                MetricsError(format!("unable to get metric {name}: {kind} on {namespace} {object}/{error}"))
            })
        };
        let status = |current| {
            let object =
                ObjectMetricStatus { described_object: object.clone(), metric: source.metric.clone(), current };
            MetricStatus { type_: "Object".into(), object: Some(object), ..Default::default() }
        };
        match (source.target.type_.as_str(), &source.target.value, &source.target.average_value) {
            ("Value", Some(target), _) => {
                let usage = usage().await.map_err(value_failure)?;
                let target = quantity_millis(target).unwrap_or(0);
                let replicas = self.calculator.ratio_replicas(self.spec_replicas, usage, target);
                let current = MetricValueStatus { value: Some(millis_quantity(usage, false)), ..Default::default() };
                Ok(MetricProposal {
                    replicas: replicas.map_err(value_failure)?,
                    name: format!("{} metric {name}", object.kind),
                    status: status(current),
                })
            }
            ("AverageValue", _, Some(target)) => {
                let usage = usage().await.map_err(per_pod_failure)?;
                let target = quantity_millis(target).unwrap_or(0);
                let (replicas, per_pod) = self.calculator.per_pod_replicas(self.status_replicas, usage, target);
                let average_value = Some(millis_quantity(per_pod, false));
                let current = MetricValueStatus { average_value, ..Default::default() };
                Ok(MetricProposal {
                    replicas,
                    name: external_name(name, source.metric.selector.as_ref()),
                    status: status(current),
                })
            }
            _ => {
                let message =
                    "invalid object metric source: neither a value target nor an average value target was set";
                Err(value_failure(MetricsError(message.into())))
            }
        }
    }

    async fn evaluate_external(&self, source: &ExternalMetricSource) -> Result<MetricProposal, MetricFailure> {
        let (name, selector) = (&source.metric.name, source.metric.selector.as_ref());
        let failure = |error: MetricsError, report: MetricsError| MetricFailure {
            reason: "FailedGetExternalMetric",
            report: report.context(&format!("failed to get {name} external metric value")),
            error,
        };
        let usage = || async {
            let usage = self.metrics.external_metric(self.namespace, name, &selector_query(selector)).await;
            let (namespace, selector) = (self.namespace, LabelSelectorText(selector));
            usage
                .map_err(|error| error.context(&format!("unable to get external metric {namespace}/{name}/{selector}")))
        };
        let (replicas, current) = match (&source.target.average_value, &source.target.value) {
            (Some(target), _) => {
                let usage = usage().await.map_err(|error| {
                    let report = error.context(&format!("failed to get {name} external metric"));
                    failure(error, report)
                })?;
                let target = quantity_millis(target).unwrap_or(0);
                let (replicas, per_pod) = self.calculator.per_pod_replicas(self.status_replicas, usage, target);
                let average_value = Some(millis_quantity(per_pod, false));
                (replicas, MetricValueStatus { average_value, ..Default::default() })
            }
            (None, Some(target)) => {
                let value_failure = |error: MetricsError| {
                    let report = error.context(&format!("failed to get external metric {name}"));
                    failure(error, report)
                };
                let usage = usage().await.map_err(value_failure)?;
                let target = quantity_millis(target).unwrap_or(0);
                let replicas =
                    self.calculator.ratio_replicas(self.spec_replicas, usage, target).map_err(value_failure)?;
                (replicas, MetricValueStatus { value: Some(millis_quantity(usage, false)), ..Default::default() })
            }
            (None, None) => {
                let message =
                    "invalid external metric source: neither a value target nor an average value target was set";
                let error = MetricsError(message.into());
                return Err(failure(error.clone(), error));
            }
        };
        let external = ExternalMetricStatus { metric: source.metric.clone(), current };
        let status = MetricStatus { type_: "External".into(), external: Some(external), ..Default::default() };
        Ok(MetricProposal { replicas, name: external_name(name, selector), status })
    }
}

fn resource_status(resource: &str, container: Option<&str>, current: MetricValueStatus) -> MetricStatus {
    match container {
        None => MetricStatus {
            type_: "Resource".into(),
            resource: Some(ResourceMetricStatus { name: resource.into(), current }),
            ..Default::default()
        },
        Some(container) => MetricStatus {
            type_: "ContainerResource".into(),
            container_resource: Some(ContainerResourceMetricStatus {
                name: resource.into(),
                container: container.into(),
                current,
            }),
            ..Default::default()
        },
    }
}

fn external_name(metric: &str, selector: Option<&LabelSelector>) -> String {
    format!("external metric {metric}({})", LabelSelectorText(selector))
}

/// Formats a selector as a query; an absent one is empty.
fn selector_query(selector: Option<&LabelSelector>) -> String {
    let selector = selector.and_then(|selector| serde_json::to_value(selector).ok());
    selector.map(|selector| api::selector::format_label_selector(&selector)).unwrap_or_default()
}
