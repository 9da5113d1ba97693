//! Exponential back-off of pod re-creation after failures.

use std::time::Duration;

use jiff::Timestamp;

use crate::pod_view::{ContainerStatusView, PodView};

/// Delay after the first failure.
const DEFAULT_POD_FAILURE_BACKOFF: Duration = Duration::from_secs(10);
/// The greatest delay.
const MAX_POD_FAILURE_BACKOFF: Duration = Duration::from_secs(10 * 60);

/// Failures of a Job's pods since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackoffRecord {
    failures_after_last_success: u32,
    last_failure_time: Option<Timestamp>,
}

impl BackoffRecord {
    /// Returns the record after pods that finished at these times.
    pub(super) fn with_finished_pods(self, mut succeeded: Vec<Timestamp>, mut failed: Vec<Timestamp>) -> Self {
        succeeded.sort();
        failed.sort();
        match succeeded.last() {
            Some(last_success) => {
                let after: Vec<_> = failed.iter().filter(|time| *time > last_success).collect();
                Self {
                    failures_after_last_success: count_u32(after.len()),
                    last_failure_time: after.last().copied().copied(),
                }
            }
            None if failed.is_empty() => self,
            None => Self {
                failures_after_last_success: self.failures_after_last_success.saturating_add(count_u32(failed.len())),
                last_failure_time: failed.last().copied(),
            },
        }
    }

    /// Returns the time until the next pod may be created.
    pub(super) fn remaining_time(&self, now: Timestamp) -> Duration {
        let last = self.last_failure_time.unwrap_or(now);
        remaining_time_after_failures(self.failures_after_last_success, last, now)
    }
}

fn count_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the time until a pod may be created after this number of failures.
pub(super) fn remaining_time_after_failures(failures: u32, last_failure: Timestamp, now: Timestamp) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
    let backoff = DEFAULT_POD_FAILURE_BACKOFF.saturating_mul(factor).min(MAX_POD_FAILURE_BACKOFF);
    // A failure in the future, by a skewed clock, prolongs the delay.
    match Duration::try_from(now.duration_since(last_failure)) {
        Ok(elapsed) => backoff.saturating_sub(elapsed),
        Err(_) => backoff.saturating_add(now.duration_since(last_failure).unsigned_abs()),
    }
}

/// Returns the time when a pod finished: that of its last container, of the condition Ready, of its deletion, or of its
/// creation.
pub(super) fn finished_time(pod: &PodView) -> Timestamp {
    container_finish_time(pod)
        .or_else(|| not_ready_since(pod))
        .or_else(|| deletion_request_time(pod))
        .or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns the latest finish time of containers and sidecars, if they have all finished.
fn container_finish_time(pod: &PodView) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let init_containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: Vec<&str> = init_containers
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let containers = latest_finish_time(None, status.container_statuses.iter().flatten());
    let sidecar_statuses = status.init_container_statuses.iter().flatten();
    latest_finish_time(containers, sidecar_statuses.filter(|status| sidecars.contains(&status.name.as_str())))
}

fn latest_finish_time<'a>(
    previous: Option<Timestamp>,
    statuses: impl Iterator<Item = &'a ContainerStatusView>,
) -> Option<Timestamp> {
    let mut latest = previous;
    for status in statuses {
        let finished_at = status.termination()?.finished_at.as_ref()?.0;
        latest = latest.max(Some(finished_at));
    }
    latest
}

fn not_ready_since(pod: &PodView) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    ready.last_transition_time.as_ref().filter(|_| ready.status == "False").map(|time| time.0)
}

fn deletion_request_time(pod: &PodView) -> Option<Timestamp> {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let deletion = pod.metadata.deletion_timestamp.as_ref()?.0;
    Some(deletion.checked_sub(jiff::SignedDuration::from_secs(grace)).unwrap_or(deletion))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn delay_doubles_up_to_ten_minutes() {
        let check = |failures, elapsed: i64, expected| {
            let remaining = remaining_time_after_failures(failures, time(100), time(100 + elapsed));
            assert_eq!(remaining, Duration::from_secs(expected), "{failures} {elapsed}");
        };
        check(0, 0, 0);
        check(1, 0, 10);
        check(2, 5, 15);
        check(6, 0, 320);
        check(7, 0, 600);
        check(1000, 1, 599);
        check(1, 11, 0);
        check(1, -3, 13);
    }

    #[test]
    fn success_resets_the_failures_before_it() {
        let record = BackoffRecord::default().with_finished_pods(vec![], vec![time(3), time(1)]);
        assert_eq!((record.failures_after_last_success, record.last_failure_time), (2, Some(time(3))));
        let record = record.with_finished_pods(vec![time(5)], vec![time(4), time(6), time(9)]);
        assert_eq!((record.failures_after_last_success, record.last_failure_time), (2, Some(time(9))));
        assert_eq!(record.with_finished_pods(vec![], vec![]), record);
        assert_eq!(record.with_finished_pods(vec![time(10)], vec![]), BackoffRecord::default());
    }

    #[test]
    fn finished_time_comes_from_containers_condition_or_deletion() {
        let check = |meta, status, expected: &str| {
            let pod: PodView = serde_json::from_value(json!({"metadata": meta, "status": status})).unwrap();
            assert_eq!(finished_time(&pod), expected.parse().unwrap());
        };
        let created = json!({"creationTimestamp": "2030-01-01T00:00:00Z"});
        let exited = |at| {
            json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 1, "finishedAt": at}}})
        };
        let not_ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2030-01-01T00:00:07Z"}]);
        let both = json!([exited("2030-01-01T00:00:03Z"), exited("2030-01-01T00:00:05Z")]);
        check(created.clone(), json!({"containerStatuses": both}), "2030-01-01T00:00:05Z");
        check(created.clone(), json!({"conditions": not_ready}), "2030-01-01T00:00:07Z");
        let deleted = json!({"deletionTimestamp": "2030-01-01T00:00:30Z", "deletionGracePeriodSeconds": 10});
        check(deleted, json!({}), "2030-01-01T00:00:20Z");
        check(created, json!({}), "2030-01-01T00:00:00Z");
    }
}
