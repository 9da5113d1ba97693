//! Calculates the desired number of replicas from metrics, as upstream's `ReplicaCalculator`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;

use super::{MetricsError, pod_requests::pod_requests};
use crate::{
    pod_availability::{is_pod_ready, pod_phase},
    pod_view::PodView,
};

/// A sample of a pod's metric, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodMetric {
    pub(super) timestamp: Timestamp,
    pub(super) window: Duration,
    pub(super) value: i64,
}

/// Samples by pod name.
pub(super) type PodMetrics = BTreeMap<String, PodMetric>;

/// Deviations from the target ratio that cause no scaling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) scale_down: f64,
    pub(super) scale_up: f64,
}

impl Tolerances {
    fn is_within(self, ratio: f64) -> bool {
        1.0 - self.scale_down <= ratio && ratio <= 1.0 + self.scale_up
    }
}

/// Inputs that all calculations share.
#[derive(Clone, Debug)]
pub(super) struct ReplicaCalculator {
    /// Pods that the scale's selector matches.
    pub(super) pods: Vec<Arc<PodView>>,
    pub(super) tolerances: Tolerances,
    pub(super) cpu_initialization_period: Duration,
    pub(super) initial_readiness_delay: Duration,
    pub(super) now: Timestamp,
}

/// Result for a utilization target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UtilizationProposal {
    pub(super) replicas: i32,
    /// Percentage of the requests.
    pub(super) utilization: i32,
    /// Average usage per pod, in thousandths.
    pub(super) average: i64,
}

/// Pods by what is known about their usage.
#[derive(Debug, Default)]
struct GroupedPods {
    ready_count: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl ReplicaCalculator {
    /// Calculates replicas for a target percentage of the requests of a resource.
    pub(super) fn utilization_replicas(
        &self,
        current: i32,
        target: i32,
        metrics: PodMetrics,
        source: (&str, Option<&str>),
    ) -> Result<UtilizationProposal, MetricsError> {
        let (resource, container) = source;
        let (groups, metrics) = self.grouped_metrics(metrics, resource)?;
        let mut requests = BTreeMap::new();
        for pod in &self.pods {
            requests.insert(pod.name_any(), pod_requests(pod, container, resource)?);
        }
        let (_, utilization, average) = utilization_ratio(&metrics, &requests, target)?;
        let ratio = |metrics: &PodMetrics| utilization_ratio(metrics, &requests, target).map(|(ratio, ..)| ratio);
        // A missing pod is taken to use all of its request when scaling down.
        let fallback = |pod: &str| requests.get(pod).copied().unwrap_or(0) * i64::from(target.max(100)) / 100;
        let replicas = self.replicas_from_ratio(current, &groups, metrics, ratio, fallback)?;
        Ok(UtilizationProposal { replicas, utilization, average })
    }

    /// Calculates replicas for a target average value; returns them and the average usage.
    pub(super) fn average_value_replicas(
        &self,
        current: i32,
        target: i64,
        metrics: PodMetrics,
        resource: &str,
    ) -> Result<(i32, i64), MetricsError> {
        let (groups, metrics) = self.grouped_metrics(metrics, resource)?;
        let usage = average_usage(&metrics);
        let ratio = |metrics: &PodMetrics| Ok(average_usage(metrics) as f64 / target as f64);
        let replicas = self.replicas_from_ratio(current, &groups, metrics, ratio, |_| target)?;
        Ok((replicas, usage))
    }

    /// Calculates replicas for a value that all pods share.
    pub(super) fn ratio_replicas(&self, current: i32, usage: i64, target: i64) -> Result<i32, MetricsError> {
        let ratio = usage as f64 / target as f64;
        if current == 0 {
            return Ok(round_up(ratio));
        }
        if self.tolerances.is_within(ratio) {
            return Ok(current);
        }
        if self.pods.is_empty() {
            return Err(no_pods().context("unable to calculate ready pods"));
        }
        let ready = self.pods.iter().filter(|pod| pod_phase(pod) == "Running" && is_pod_ready(pod)).count();
        Ok(round_up(ratio * ready as f64))
    }

    /// Calculates replicas for a target value per pod; returns them and the usage per pod.
    pub(super) fn per_pod_replicas(&self, status_replicas: i32, usage: i64, target: i64) -> (i32, i64) {
        let ratio = usage as f64 / (target as f64 * f64::from(status_replicas));
        let replicas = match self.tolerances.is_within(ratio) {
            true => status_replicas,
            false => round_up(usage as f64 / target as f64),
        };
        let per_pod = (usage as f64 / f64::from(status_replicas)).ceil();
        (replicas, if usage == i64::MAX { usage } else { per_pod as i64 })
    }

    /// Groups the pods and removes the samples of those that must not count.
    fn grouped_metrics(
        &self,
        mut metrics: PodMetrics,
        resource: &str,
    ) -> Result<(GroupedPods, PodMetrics), MetricsError> {
        if self.pods.is_empty() {
            return Err(no_pods());
        }
        let groups = self.group_pods(&metrics, resource);
        metrics.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
        if metrics.is_empty() {
            let message = "did not receive metrics for targeted pods (pods might be unready)";
            return Err(MetricsError(message.into()));
        }
        Ok((groups, metrics))
    }

    fn group_pods(&self, metrics: &PodMetrics, resource: &str) -> GroupedPods {
        let mut groups = GroupedPods::default();
        for pod in &self.pods {
            let name = pod.name_any();
            if pod.metadata.deletion_timestamp.is_some() || pod_phase(pod) == "Failed" {
                groups.ignored.insert(name);
            } else if pod_phase(pod) == "Pending" {
                groups.unready.insert(name);
            } else if let Some(metric) = metrics.get(&name) {
                match resource == "cpu" && self.is_cpu_sample_unusable(pod, metric) {
                    true => drop(groups.unready.insert(name)),
                    false => groups.ready_count += 1,
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }

    /// Whether a pod that starts distorts its CPU usage.
    fn is_cpu_sample_unusable(&self, pod: &PodView, metric: &PodMetric) -> bool {
        let Some(status) = &pod.status else { return true };
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let (Some(ready), Some(start)) = (ready, status.start_time.as_ref().map(|time| time.0)) else { return true };
        let changed = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let after = |time: Timestamp, delay: Duration| time.saturating_add(delay).unwrap_or(Timestamp::MAX);
        if after(start, self.cpu_initialization_period) > self.now {
            ready.status == "False" || metric.timestamp < after(changed, metric.window)
        } else {
            ready.status == "False" && after(start, self.initial_readiness_delay) > changed
        }
    }

    fn replicas_from_ratio(
        &self,
        current: i32,
        groups: &GroupedPods,
        mut metrics: PodMetrics,
        ratio_of: impl Fn(&PodMetrics) -> Result<f64, MetricsError>,
        fallback: impl Fn(&str) -> i64,
    ) -> Result<i32, MetricsError> {
        let ratio = ratio_of(&metrics)?;
        let counts_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !counts_unready && groups.missing.is_empty() {
            return Ok(match self.tolerances.is_within(ratio) {
                true => current,
                false => round_up(ratio * groups.ready_count as f64),
            });
        }
        let mut assume = |pod: &String, value| {
            metrics.insert(pod.clone(), PodMetric { timestamp: self.now, window: Duration::ZERO, value });
        };
        if ratio < 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, fallback(pod)));
        } else if ratio > 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, 0));
        }
        if counts_unready {
            groups.unready.iter().for_each(|pod| assume(pod, 0));
        }
        let new_ratio = ratio_of(&metrics)?;
        let turns_around = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        if self.tolerances.is_within(new_ratio) || turns_around {
            return Ok(current);
        }
        let replicas = round_up(new_ratio * metrics.len() as f64);
        let contradicts = (new_ratio < 1.0 && replicas > current) || (new_ratio > 1.0 && replicas < current);
        Ok(if contradicts { current } else { replicas })
    }
}

/// Returns the ratio to the target, the utilization in percent and the average usage.
fn utilization_ratio(
    metrics: &PodMetrics,
    requests: &BTreeMap<String, i64>,
    target: i32,
) -> Result<(f64, i32, i64), MetricsError> {
    let known = metrics.iter().filter_map(|(pod, metric)| Some((metric.value, *requests.get(pod)?)));
    let (mut used, mut requested, mut count) = (0i64, 0i64, 0i64);
    for (value, request) in known {
        (used, requested, count) = (used.saturating_add(value), requested.saturating_add(request), count + 1);
    }
    if requested == 0 {
        return Err(MetricsError("no metrics returned matched known pods".into()));
    }
    let utilization = i32::try_from(used.saturating_mul(100) / requested).unwrap_or(i32::MAX);
    Ok((f64::from(utilization) / f64::from(target), utilization, used / count))
}

fn average_usage(metrics: &PodMetrics) -> i64 {
    let total = metrics.values().fold(0i64, |total, metric| total.saturating_add(metric.value));
    total / i64::try_from(metrics.len().max(1)).unwrap_or(1)
}

fn no_pods() -> MetricsError {
    MetricsError("no pods returned by selector while calculating replica count".into())
}

/// Rounds up; the conversion saturates.
fn round_up(replicas: f64) -> i32 {
    replicas.ceil() as i32
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2030-01-01T01:00:00Z";

    /// Builds a pod that requests 1000m CPU and has been ready for an hour, unless it is `Pending` or `unready`.
    fn pod(name: &str, state: &str) -> Arc<PodView> {
        let phase = if state == "Pending" { "Pending" } else { "Running" };
        let (ready, since) = match state {
            "unready" => ("False", "2030-01-01T00:59:50Z"),
            _ => ("True", "2030-01-01T00:00:00Z"),
        };
        let start = if state == "unready" { "2030-01-01T00:59:50Z" } else { "2030-01-01T00:00:00Z" };
        let conditions: Value = json!([{"type": "Ready", "status": ready, "lastTransitionTime": since}]);
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": phase, "startTime": start, "conditions": conditions}}))
            .unwrap(),
        )
    }

    fn calculator(states: &[&str]) -> ReplicaCalculator {
        ReplicaCalculator {
            pods: states.iter().enumerate().map(|(at, state)| pod(&format!("p{at}"), state)).collect(),
            tolerances: Tolerances { scale_down: 0.1, scale_up: 0.1 },
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
            now: NOW.parse().unwrap(),
        }
    }

    fn metrics(values: &[i64]) -> PodMetrics {
        let sample = |value| PodMetric { timestamp: NOW.parse().unwrap(), window: Duration::from_secs(60), value };
        values.iter().enumerate().map(|(at, value)| (format!("p{at}"), sample(*value))).collect()
    }

    #[test]
    fn utilization_scales_with_missing_and_unready_pods() {
        let check = |states: &[&str], current, target, values: &[i64], expected: i32, utilization| {
            let proposal = calculator(states).utilization_replicas(current, target, metrics(values), ("cpu", None));
            let proposal = proposal.unwrap();
            assert_eq!((proposal.replicas, proposal.utilization), (expected, utilization), "{states:?} {values:?}");
        };
        check(&["ready"; 3], 3, 30, &[300, 500, 700], 5, 50);
        check(&["ready"; 4], 4, 100, &[950; 4], 4, 95);
        check(&["ready"; 3], 3, 50, &[100, 100, 100], 1, 10);
        // Unready pods count as idle when scaling up.
        check(&["ready", "ready", "unready"], 3, 30, &[400, 500, 700], 3, 45);
        check(&["ready", "ready", "Pending"], 3, 30, &[900, 900], 6, 90);
        // Missing pods count as idle when scaling up, and as busy when scaling down.
        check(&["ready"; 3], 3, 30, &[900, 900], 6, 90);
        check(&["ready"; 3], 3, 50, &[100, 100], 3, 10);
    }

    #[test]
    fn errors_name_the_cause() {
        let error = |states: &[&str], values: &[i64]| {
            calculator(states).utilization_replicas(1, 50, metrics(values), ("cpu", None)).unwrap_err().to_string()
        };
        assert_eq!(error(&[], &[1]), "no pods returned by selector while calculating replica count");
        assert_eq!(error(&["Pending"], &[1]), "did not receive metrics for targeted pods (pods might be unready)");
        let missing = calculator(&["ready"]).utilization_replicas(1, 50, metrics(&[1]), ("memory", None)).unwrap_err();
        assert_eq!(missing.to_string(), "missing request for memory in container c of Pod p0");
    }

    #[test]
    fn values_are_compared_in_total_or_per_pod() {
        let three = calculator(&["ready"; 3]);
        assert_eq!(three.average_value_replicas(3, 100, metrics(&[300, 200, 100]), "").unwrap(), (6, 200));
        assert_eq!(three.ratio_replicas(3, 2000, 1000).unwrap(), 6);
        assert_eq!(three.ratio_replicas(3, 1050, 1000).unwrap(), 3);
        assert_eq!(three.ratio_replicas(0, 2500, 1000).unwrap(), 3);
        assert_eq!(three.per_pod_replicas(3, 9000, 1000), (9, 3000));
        assert_eq!(three.per_pod_replicas(3, 3100, 1000), (3, 1034));
        assert_eq!(three.per_pod_replicas(3, i64::MAX, 1000).1, i64::MAX);
    }
}
