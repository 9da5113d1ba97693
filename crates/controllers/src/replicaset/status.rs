//! The status of a ReplicaSet or ReplicationController.

use std::{sync::Arc, time::Duration};

use client::ApiErrorExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSetCondition, ReplicaSetStatus},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::replica_owner::ReplicaOwner;
use crate::{
    pod_availability::{is_pod_ready, time_until_available},
    pod_view::PodView,
};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Calculates the status from the active pods and the last failure to manage them.
pub(super) fn calculate_status<K: ReplicaOwner>(
    owner: &K,
    active: &[Arc<PodView>],
    terminating: usize,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |matches: &dyn Fn(&PodView) -> bool| saturating_i32(active.iter().filter(|pod| matches(pod)).count());
    let min_ready = owner.min_ready_seconds();
    let missing = owner.desired_replicas() - saturating_i32(active.len());
    ReplicaSetStatus {
        replicas: saturating_i32(active.len()),
        fully_labeled_replicas: Some(count(&|pod| is_fully_labeled(owner.template(), pod))),
        ready_replicas: Some(count(&is_pod_ready)),
        available_replicas: Some(count(&|pod| time_until_available(pod, min_ready, now) == Some(Duration::ZERO))),
        terminating_replicas: K::REPORTS_TERMINATING.then(|| saturating_i32(terminating)),
        observed_generation: owner.meta().generation,
        conditions: replica_failure_conditions(owner.replica_status().conditions, failure, missing, now),
    }
}

fn saturating_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn is_fully_labeled(template: Option<&PodTemplateSpec>, pod: &PodView) -> bool {
    let desired = template.and_then(|template| template.metadata.as_ref()).and_then(|meta| meta.labels.as_ref());
    desired.is_none_or(|desired| desired.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
}

/// Updates the condition ReplicaFailure; the first reason is kept until the failure clears.
fn replica_failure_conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    failure: Option<String>,
    missing: i32,
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
            reason: Some(if missing > 0 { "FailedCreate" } else { "FailedDelete" }.into()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// Returns the time until the next ready pod becomes available.
pub(super) fn next_availability_check<K: ReplicaOwner>(
    owner: &K,
    status: &ReplicaSetStatus,
    active: &[Arc<PodView>],
    now: Timestamp,
) -> Option<Duration> {
    let min_ready = owner.min_ready_seconds();
    if min_ready <= 0 || status.ready_replicas == status.available_replicas {
        return None;
    }
    let left = active.iter().filter_map(|pod| time_until_available(pod, min_ready, now)).filter(|left| !left.is_zero());
    Some(left.min().unwrap_or(Duration::from_secs(min_ready.unsigned_abs().into())))
}

/// Writes the status if it changed and returns the written object; a failure is retried once on the latest version. An
/// owner that is gone or was recreated needs no status.
pub(super) async fn update_status<K: ReplicaOwner>(
    client: &Client,
    owner: &K,
    status: ReplicaSetStatus,
) -> Result<Option<K>, kube::Error> {
    if is_same_status(&owner.replica_status(), &status) {
        return Ok(None);
    }
    let meta = owner.meta();
    let api: Api<K> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or(""));
    let name = meta.name.as_deref().unwrap_or("");
    let mut update = owner.clone();
    update.set_replica_status(status.clone());
    match api.replace_status(name, &PostParams::default(), &update).await {
        Err(error) if !error.is_not_found() => {
            let Some(mut fresh) = api.get_opt(name).await?.filter(|fresh| fresh.meta().uid == meta.uid) else {
                return Ok(None);
            };
            fresh.set_replica_status(status);
            ignore_not_found(api.replace_status(name, &PostParams::default(), &fresh).await)
        }
        result => ignore_not_found(result),
    }
}

fn ignore_not_found<K>(result: Result<K, kube::Error>) -> Result<Option<K>, kube::Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(None),
        result => result.map(Some),
    }
}

/// Whether two statuses are equal, with absent counts as zero. An absent `terminatingReplicas` is unknown.
fn is_same_status(old: &ReplicaSetStatus, new: &ReplicaSetStatus) -> bool {
    let counts = |status: &ReplicaSetStatus| {
        let optional = [status.fully_labeled_replicas, status.ready_replicas, status.available_replicas];
        let optional = optional.map(|count| count.unwrap_or(0));
        (status.replicas, optional, status.terminating_replicas, status.observed_generation)
    };
    counts(old) == counts(new) && old.conditions.as_deref().unwrap_or(&[]) == new.conditions.as_deref().unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};
    use serde_json::json;

    use super::*;

    fn pod(ready_since: Option<&str>) -> Arc<PodView> {
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
        assert_eq!(next_availability_check(&replica_set, &status, &pods, now), Some(Duration::from_secs(6)));
    }

    #[test]
    fn replication_controller_has_no_terminating_replicas() {
        let controller: ReplicationController = serde_json::from_value(json!({"spec": {"replicas": 1}})).unwrap();
        let status = calculate_status(&controller, &[], 1, None, Timestamp::UNIX_EPOCH);
        assert_eq!(status.terminating_replicas, None);
    }

    #[test]
    fn unknown_terminating_replicas_differ_from_none() {
        let unknown = ReplicaSetStatus::default();
        let none = ReplicaSetStatus { terminating_replicas: Some(0), ready_replicas: Some(0), ..Default::default() };
        assert!(!is_same_status(&unknown, &none));
        assert!(is_same_status(&none, &ReplicaSetStatus { ready_replicas: None, ..none.clone() }));
    }

    #[test]
    fn replica_failure_is_set_and_cleared() {
        let now = Timestamp::UNIX_EPOCH;
        let failed = replica_failure_conditions(None, Some("quota".into()), 1, now);
        assert_eq!(failed.as_ref().unwrap()[0].reason.as_deref(), Some("FailedCreate"));
        assert_eq!(replica_failure_conditions(failed.clone(), Some("other".into()), 1, now), failed);
        assert_eq!(replica_failure_conditions(failed, None, 1, now), None);
    }
}
