//! Stabilization windows, scaling policies and bounds of an autoscaler.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// Replicas that were recommended or changed at a time.
#[derive(Clone, Copy, Debug)]
struct TimedReplicas {
    replicas: i32,
    at: Timestamp,
}

/// Recommendations and scalings of an autoscaler that its windows and policies look back at.
#[derive(Clone, Debug, Default)]
pub(super) struct ScaleHistory {
    recommendations: Vec<TimedReplicas>,
    scale_ups: Vec<TimedReplicas>,
    scale_downs: Vec<TimedReplicas>,
}

/// A replica count and what to say about it in a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicaLimit {
    pub(super) replicas: i32,
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// Replica counts to be normalized.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaBounds {
    pub(super) current: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

const SCALE_DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const SCALE_UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const READY_FOR_NEW_SCALE: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const WITHIN_RANGE: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const SCALE_UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const SCALE_DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

fn limit(replicas: i32, (reason, message): (&'static str, &'static str)) -> ReplicaLimit {
    ReplicaLimit { replicas, reason, message }
}

impl ScaleHistory {
    /// Records the size at which an autoscaler is first seen.
    pub(super) fn record_initial(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push(TimedReplicas { replicas: current, at: now });
        }
    }

    /// Applies the downscale stabilization of an autoscaler without behavior.
    pub(super) fn stabilize(&mut self, desired: i32, window: Duration, now: Timestamp) -> ReplicaLimit {
        let cutoff = before(now, window);
        let recent = self.recommendations.iter().filter(|recommendation| recommendation.at >= cutoff);
        let highest = recent.map(|recommendation| recommendation.replicas).fold(desired, i32::max);
        replace_outdated(&mut self.recommendations, TimedReplicas { replicas: desired, at: now }, cutoff);
        limit(highest, if highest == desired { READY_FOR_NEW_SCALE } else { SCALE_DOWN_STABILIZED })
    }

    /// Applies the stabilization windows of a behavior; `default_down` is the window of a scale-down without one.
    pub(super) fn stabilize_with_behavior(
        &mut self,
        behavior: &HorizontalPodAutoscalerBehavior,
        current: i32,
        desired: i32,
        default_down: Duration,
        now: Timestamp,
    ) -> ReplicaLimit {
        let window =
            |rules: &Option<HPAScalingRules>| rules.as_ref().and_then(|rules| rules.stabilization_window_seconds);
        let cutoff_of = |seconds: i32| before(now, Duration::from_secs(seconds.unsigned_abs().into()));
        let up_cutoff = cutoff_of(window(&behavior.scale_up).unwrap_or(0));
        let down_cutoff = window(&behavior.scale_down).map_or_else(|| before(now, default_down), cutoff_of);
        let since = |cutoff: Timestamp| {
            self.recommendations.iter().filter(move |recommendation| recommendation.at > cutoff).map(|one| one.replicas)
        };
        let lowest = since(up_cutoff).fold(desired, i32::min);
        let highest = since(down_cutoff).fold(desired, i32::max);
        let stabilized = current.max(lowest).min(highest);
        let newest = TimedReplicas { replicas: desired, at: now };
        replace_outdated(&mut self.recommendations, newest, up_cutoff.min(down_cutoff));
        limit(
            stabilized,
            match stabilized {
                _ if stabilized == desired => READY_FOR_NEW_SCALE,
                _ if desired >= current => SCALE_UP_STABILIZED,
                _ => SCALE_DOWN_STABILIZED,
            },
        )
    }

    /// Limits a replica count by the policies of a behavior and the autoscaler's bounds.
    pub(super) fn limit_by_behavior(
        &self,
        behavior: &HorizontalPodAutoscalerBehavior,
        bounds: ReplicaBounds,
        desired: i32,
        now: Timestamp,
    ) -> ReplicaLimit {
        let ReplicaBounds { current, min, max } = bounds;
        if desired > current {
            let allowed = self.scale_up_limit(behavior.scale_up.as_ref(), current, now).max(current);
            let (allowed, why) = if max > allowed { (allowed, SCALE_UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > allowed {
                return limit(allowed, why);
            }
        } else if desired < current {
            let allowed = self.scale_down_limit(behavior.scale_down.as_ref(), current, now).min(current);
            let (allowed, why) = if min < allowed { (allowed, SCALE_DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < allowed {
                return limit(allowed, why);
            }
        }
        limit(desired, WITHIN_RANGE)
    }

    fn scale_up_limit(&self, rules: Option<&HPAScalingRules>, current: i32, now: Timestamp) -> i32 {
        let proposals = self.policy_proposals(rules, current, now, |start, policy| match policy.type_.as_str() {
            "Pods" => start.saturating_add(policy.value),
            _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
        });
        match rules.and_then(|rules| rules.select_policy.as_deref()) {
            Some("Disabled") => current,
            Some("Min") => proposals.into_iter().min().unwrap_or(i32::MAX),
            _ => proposals.into_iter().max().unwrap_or(i32::MIN),
        }
    }

    fn scale_down_limit(&self, rules: Option<&HPAScalingRules>, current: i32, now: Timestamp) -> i32 {
        let proposals = self.policy_proposals(rules, current, now, |start, policy| match policy.type_.as_str() {
            "Pods" => start.saturating_sub(policy.value),
            _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
        });
        match rules.and_then(|rules| rules.select_policy.as_deref()) {
            Some("Disabled") => current,
            Some("Min") => proposals.into_iter().max().unwrap_or(i32::MIN),
            _ => proposals.into_iter().min().unwrap_or(i32::MAX),
        }
    }

    /// Returns the size that each policy allows, given the size at the start of its period.
    fn policy_proposals(
        &self,
        rules: Option<&HPAScalingRules>,
        current: i32,
        now: Timestamp,
        propose: impl Fn(i32, &HPAScalingPolicy) -> i32,
    ) -> Vec<i32> {
        let policies = rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default();
        let change_since = |changes: &[TimedReplicas], cutoff: Timestamp| -> i32 {
            changes.iter().filter(|change| change.at > cutoff).map(|change| change.replicas).sum()
        };
        let proposal = |policy: &HPAScalingPolicy| {
            let cutoff = before(now, Duration::from_secs(policy.period_seconds.unsigned_abs().into()));
            let start = current - change_since(&self.scale_ups, cutoff) + change_since(&self.scale_downs, cutoff);
            propose(start, policy)
        };
        policies.iter().map(proposal).collect()
    }

    /// Records a scaling for the policies of a behavior.
    pub(super) fn record_scaling(
        &mut self,
        behavior: &HorizontalPodAutoscalerBehavior,
        before_scaling: i32,
        after_scaling: i32,
        now: Timestamp,
    ) {
        let (rules, changes) = match after_scaling > before_scaling {
            true => (&behavior.scale_up, &mut self.scale_ups),
            false => (&behavior.scale_down, &mut self.scale_downs),
        };
        let policies = rules.as_ref().and_then(|rules| rules.policies.as_deref()).unwrap_or_default();
        let longest = policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0);
        let cutoff = before(now, Duration::from_secs(longest.unsigned_abs().into()));
        let change = (after_scaling - before_scaling).abs();
        replace_outdated(changes, TimedReplicas { replicas: change, at: now }, cutoff);
    }
}

/// Adds an entry in the place of those before the cutoff.
fn replace_outdated(entries: &mut Vec<TimedReplicas>, newest: TimedReplicas, cutoff: Timestamp) {
    entries.retain(|entry| entry.at >= cutoff);
    entries.push(newest);
}

fn before(now: Timestamp, window: Duration) -> Timestamp {
    let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
    now.checked_sub(window).unwrap_or(Timestamp::MIN)
}

/// Limits the replica count of an autoscaler without behavior: at most doubled, or four.
pub(super) fn limit_by_bounds(bounds: ReplicaBounds, desired: i32) -> ReplicaLimit {
    let rate = bounds.current.saturating_mul(2).max(4);
    let (allowed, why) = if bounds.max > rate { (rate, SCALE_UP_LIMIT) } else { (bounds.max, TOO_MANY) };
    match desired {
        _ if desired < bounds.min => limit(bounds.min, TOO_FEW),
        _ if desired > allowed => limit(allowed, why),
        _ => limit(desired, WITHIN_RANGE),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn scale_down_waits_for_the_stabilization_window() {
        let mut history = ScaleHistory::default();
        history.record_initial(5, time(0));
        let window = Duration::from_secs(300);
        let stabilized = history.stabilize(2, window, time(15));
        assert_eq!((stabilized.replicas, stabilized.reason), (5, "ScaleDownStabilized"));
        assert_eq!(history.stabilize(3, window, time(290)).replicas, 5);
        assert_eq!(history.stabilize(2, window, time(305)).replicas, 3);
        let ready = history.stabilize(2, window, time(600));
        assert_eq!((ready.replicas, ready.reason), (2, "ReadyForNewScale"));
    }

    #[test]
    fn bounds_limit_the_size() {
        let bounds = ReplicaBounds { current: 3, min: 2, max: 10 };
        let check = |desired, replicas, reason| {
            let limited = limit_by_bounds(bounds, desired);
            assert_eq!((limited.replicas, limited.reason), (replicas, reason));
        };
        check(1, 2, "TooFewReplicas");
        check(5, 5, "DesiredWithinRange");
        check(9, 6, "ScaleUpLimit");
        let near = ReplicaBounds { max: 6, ..bounds };
        assert_eq!(limit_by_bounds(near, 9).reason, "TooManyReplicas");
    }

    #[test]
    fn policies_limit_the_rate() {
        let behavior: HorizontalPodAutoscalerBehavior = serde_json::from_value(json!({
            "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60},
                {"type": "Percent", "value": 10, "periodSeconds": 60}]},
            "scaleDown": {"selectPolicy": "Min", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60},
                {"type": "Percent", "value": 50, "periodSeconds": 60}]},
        }))
        .unwrap();
        let bounds = ReplicaBounds { current: 10, min: 1, max: 20 };
        let mut history = ScaleHistory::default();
        let check = |history: &ScaleHistory, desired, replicas, reason| {
            let limited = history.limit_by_behavior(&behavior, bounds, desired, time(100));
            assert_eq!((limited.replicas, limited.reason), (replicas, reason));
        };
        check(&history, 15, 12, "ScaleUpLimit");
        check(&history, 5, 9, "ScaleDownLimit");
        check(&history, 11, 11, "DesiredWithinRange");
        history.record_scaling(&behavior, 8, 10, time(90));
        check(&history, 15, 10, "ScaleUpLimit");
        history.record_scaling(&behavior, 11, 10, time(95));
        check(&history, 15, 11, "ScaleUpLimit");
        let disabled: HorizontalPodAutoscalerBehavior =
            serde_json::from_value(json!({"scaleDown": {"selectPolicy": "Disabled", "policies": []}})).unwrap();
        assert_eq!(history.limit_by_behavior(&disabled, bounds, 5, time(100)).replicas, 10);
    }

    #[test]
    fn stabilization_windows_hold_in_both_directions() {
        let behavior: HorizontalPodAutoscalerBehavior = serde_json::from_value(json!({
            "scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 120}}))
        .unwrap();
        let mut history = ScaleHistory::default();
        let stabilize = |history: &mut ScaleHistory, current, desired, at| {
            let limited = history.stabilize_with_behavior(&behavior, current, desired, Duration::ZERO, time(at));
            (limited.replicas, limited.reason)
        };
        history.record_initial(5, time(0));
        assert_eq!(stabilize(&mut history, 5, 8, 10), (5, "ScaleUpStabilized"));
        assert_eq!(stabilize(&mut history, 5, 8, 65), (8, "ReadyForNewScale"));
        assert_eq!(stabilize(&mut history, 8, 3, 80), (8, "ScaleDownStabilized"));
        assert_eq!(stabilize(&mut history, 8, 3, 190), (3, "ReadyForNewScale"));
    }
}
