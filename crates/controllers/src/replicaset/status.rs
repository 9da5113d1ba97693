//! What a ReplicaSet's status says about its pods, and how it is written.

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

use crate::availability::{available_in, is_ready};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// How many pods the ReplicaSet should have.
pub(super) fn desired(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn min_ready_seconds(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// The status that these pods, and the failure to change them, make.
pub(super) fn calculate(
    replica_set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |matches: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|pod| matches(pod)).count());
    let old = replica_set.status.clone().unwrap_or_default();
    let min_ready = min_ready_seconds(replica_set);
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: Some(count(&|pod| is_fully_labeled(replica_set, pod))),
        ready_replicas: Some(count(&is_ready)),
        available_replicas: Some(count(&|pod| available_in(pod, min_ready, now) == Some(Duration::ZERO))),
        terminating_replicas: Some(number(terminating)),
        observed_generation: replica_set.metadata.generation,
        conditions: conditions(old.conditions, failure, desired(replica_set) > number(active.len()), now),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn is_fully_labeled(replica_set: &ReplicaSet, pod: &Pod) -> bool {
    let template = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let wanted = template.and_then(|template| template.metadata.as_ref()).and_then(|meta| meta.labels.as_ref());
    wanted.is_none_or(|wanted| wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
}

/// A failure is reported once, with its first reason, until there is none.
fn conditions(
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

/// When a ready pod becomes available next, if one is still to.
pub(super) fn next_check(replica_set: &ReplicaSet, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let min_ready = min_ready_seconds(replica_set);
    active.iter().filter_map(|pod| available_in(pod, min_ready, now)).filter(|left| !left.is_zero()).min()
}

/// Writes the status if it says something new; after a conflict, once more onto the newest version.
pub(super) async fn write(
    client: &Client,
    replica_set: &ReplicaSet,
    status: ReplicaSetStatus,
) -> Result<(), kube::Error> {
    if replica_set.status.as_ref().is_some_and(|old| same(old, &status)) {
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
            gone_is_fine(api.replace_status(&name, &PostParams::default(), &fresh).await)
        }
        result => gone_is_fine(result),
    }
}

fn gone_is_fine(result: Result<ReplicaSet, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

/// Counts that are absent mean zero.
fn same(old: &ReplicaSetStatus, new: &ReplicaSetStatus) -> bool {
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
    fn availability_needs_time() {
        let replica_set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"generation": 3},
            "spec": {"replicas": 3, "minReadySeconds": 10, "selector": {},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        }))
        .unwrap();
        let pods = [pod(None), pod(Some("2030-01-01T00:00:00Z")), pod(Some("2030-01-01T00:00:06Z"))];
        let now = "2030-01-01T00:00:10Z".parse().unwrap();
        let status = calculate(&replica_set, &pods, 1, None, now);
        assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(2), Some(1)));
        assert_eq!((status.terminating_replicas, status.fully_labeled_replicas), (Some(1), Some(3)));
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(next_check(&replica_set, &pods, now), Some(Duration::from_secs(6)));
    }

    #[test]
    fn a_failure_comes_and_goes() {
        let now = Timestamp::UNIX_EPOCH;
        let failed = conditions(None, Some("quota".into()), true, now);
        assert_eq!(failed.as_ref().unwrap()[0].reason.as_deref(), Some("FailedCreate"));
        assert_eq!(conditions(failed.clone(), Some("other".into()), true, now), failed);
        assert_eq!(conditions(failed, None, true, now), None);
    }
}
