//! ReplicaSet status.

use std::{sync::Arc, time::Duration};

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::pod_availability::{is_pod_ready, time_until_available};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Returns the ReplicaSet's `spec.replicas`.
pub(super) fn desired_replicas(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn min_ready_seconds(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// Calculates the status from the active pods and the last failure to manage them.
pub(super) fn calculate_status(
    replica_set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |matches: &dyn Fn(&Pod) -> bool| saturating_i32(active.iter().filter(|pod| matches(pod)).count());
    let old = replica_set.status.clone().unwrap_or_default();
    let min_ready = min_ready_seconds(replica_set);
    ReplicaSetStatus {
        replicas: saturating_i32(active.len()),
        fully_labeled_replicas: Some(count(&|pod| is_fully_labeled(replica_set, pod))),
        ready_replicas: Some(count(&is_pod_ready)),
        available_replicas: Some(count(&|pod| time_until_available(pod, min_ready, now) == Some(Duration::ZERO))),
        terminating_replicas: Some(saturating_i32(terminating)),
        observed_generation: replica_set.metadata.generation,
        conditions: replica_failure_conditions(
            old.conditions,
            failure,
            desired_replicas(replica_set) > saturating_i32(active.len()),
            now,
        ),
    }
}

fn saturating_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn is_fully_labeled(replica_set: &ReplicaSet, pod: &Pod) -> bool {
    let template = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let desired = template.and_then(|template| template.metadata.as_ref()).and_then(|meta| meta.labels.as_ref());
    desired.is_none_or(|desired| desired.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
}

/// Updates the condition ReplicaFailure; the first reason is kept until the failure clears.
fn replica_failure_conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    failure: Option<String>,
    too_few: bool,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = old.unwrap_or_default();
    let reported = conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE);
    match failure {
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        Some(_) if reported => {}
        Some(message) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.into(),
            status: "True".into(),
            reason: Some(if too_few { "FailedCreate" } else { "FailedDelete" }.into()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// Returns the time until the next ready pod becomes available.
pub(super) fn next_availability_check(
    replica_set: &ReplicaSet,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<Duration> {
    let min_ready = min_ready_seconds(replica_set);
    active.iter().filter_map(|pod| time_until_available(pod, min_ready, now)).filter(|left| !left.is_zero()).min()
}

/// Writes the status if it changed; a conflict is retried once on the latest version.
pub(super) async fn update_status(
    client: &Client,
    replica_set: &ReplicaSet,
    status: ReplicaSetStatus,
) -> Result<(), kube::Error> {
    if replica_set.status.as_ref().is_some_and(|old| is_same_status(old, &status)) {
        return Ok(());
    }
    let api: Api<ReplicaSet> = Api::namespaced(client.clone(), replica_set.metadata.namespace.as_deref().unwrap_or(""));
    let name = replica_set.name_any();
    let mut update = replica_set.clone();
    update.status = Some(status.clone());
    match api.replace_status(&name, &PostParams::default(), &update).await {
        Err(error) if error.is_conflict() => {
            let Some(mut fresh) = api.get_opt(&name).await? else { return Ok(()) };
            if fresh.metadata.uid != replica_set.metadata.uid {
                return Ok(());
            }
            fresh.status = Some(status);
            ignore_not_found(api.replace_status(&name, &PostParams::default(), &fresh).await)
        }
        result => ignore_not_found(result),
    }
}

fn ignore_not_found(result: Result<ReplicaSet, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

/// Whether two statuses are equal, with absent counts as zero.
fn is_same_status(old: &ReplicaSetStatus, new: &ReplicaSetStatus) -> bool {
    let counts = |status: &ReplicaSetStatus| {
        let optional = [
            status.fully_labeled_replicas,
            status.ready_replicas,
            status.available_replicas,
            status.terminating_replicas,
        ];
        (status.replicas, optional.map(|count| count.unwrap_or(0)), status.observed_generation)
    };
    counts(old) == counts(new) && old.conditions.as_deref().unwrap_or(&[]) == new.conditions.as_deref().unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready_since: Option<&str>) -> Arc<Pod> {
        let ready = ready_since.map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
        Arc::new(
            serde_json::from_value(json!({"metadata": {"labels": {"app": "web"}}, "status": {"conditions": ready}}))
                .unwrap(),
        )
    }

    #[test]
    fn available_replicas_respect_min_ready_seconds() {
        let replica_set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"generation": 3},
            "spec": {"replicas": 3, "minReadySeconds": 10, "selector": {},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        }))
        .unwrap();
        let pods = [pod(None), pod(Some("2030-01-01T00:00:00Z")), pod(Some("2030-01-01T00:00:06Z"))];
        let now = "2030-01-01T00:00:10Z".parse().unwrap();
        let status = calculate_status(&replica_set, &pods, 1, None, now);
        assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(2), Some(1)));
        assert_eq!((status.terminating_replicas, status.fully_labeled_replicas), (Some(1), Some(3)));
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(next_availability_check(&replica_set, &pods, now), Some(Duration::from_secs(6)));
    }

    #[test]
    fn replica_failure_is_set_and_cleared() {
        let now = Timestamp::UNIX_EPOCH;
        let failed = replica_failure_conditions(None, Some("quota".into()), true, now);
        assert_eq!(failed.as_ref().unwrap()[0].reason.as_deref(), Some("FailedCreate"));
        assert_eq!(replica_failure_conditions(failed.clone(), Some("other".into()), true, now), failed);
        assert_eq!(replica_failure_conditions(failed, None, true, now), None);
    }
}
