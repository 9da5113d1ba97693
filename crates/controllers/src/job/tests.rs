//! Decisions about Jobs: counting, limits, pods to create and delete, and the end.

use std::{collections::HashSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::{
    backoff::BackoffRecord,
    manage::{PodPlan, plan_pods},
    pods::{TRACKING_FINALIZER, pod_uid},
    state::{JobState, JobSyncInput},
    tracking::{count_pods_without_finalizer, finish_job, plan_tracking},
};

use crate::pod_view::PodView;

const NOW: &str = "2030-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    let mut object = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "job"}, "status": status,
        "spec": {"backoffLimit": 2, "template": {"spec": {"containers": []}}}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// Builds a pod that is tracked. A phase with a `-` in front has no finalizer any more; `deleted` is running and being
/// deleted.
fn pod(uid: &str, phase: &str, index: Option<i64>) -> Arc<PodView> {
    let finalizers = if phase.starts_with('-') { json!([]) } else { json!([TRACKING_FINALIZER]) };
    let annotations = index.map(|index| json!({"batch.kubernetes.io/job-completion-index": index.to_string()}));
    let mut object = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid, "finalizers": finalizers,
        "annotations": annotations, "creationTimestamp": "2030-01-01T00:00:00Z"},
        "status": {"phase": phase.trim_start_matches('-')}});
    if phase == "deleted" {
        object["status"]["phase"] = json!("Running");
        object["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

fn pods(all: &[(&str, &str, Option<i64>)]) -> Vec<Arc<PodView>> {
    all.iter().map(|(uid, phase, index)| pod(uid, phase, *index)).collect()
}

fn state(job: Job, pods: Vec<Arc<PodView>>) -> JobState {
    let spec = job.spec.clone().unwrap();
    let (expected_removals, backoff) = (HashSet::new(), BackoffRecord::default());
    JobState::new(JobSyncInput { job, spec, pods, expected_removals, backoff, now: now() })
}

fn finished_reason(state: &JobState) -> Option<&str> {
    state.finished.as_ref().and_then(|condition| condition.reason.as_deref())
}

/// Runs the tracking of a sync in which every finalizer is removed, and returns the type of the final condition.
fn track(state: &mut JobState) -> Option<String> {
    let mut plan = plan_tracking(state, false);
    for pod in &plan.removable {
        plan.with_finalizer.remove(pod_uid(pod));
    }
    count_pods_without_finalizer(&mut state.status, &plan.with_finalizer);
    finish_job(state, plan.reached_maximum).map(|condition| condition.type_)
}

#[test]
fn finished_pods_are_counted_once() {
    let spec = json!({"completions": 3, "parallelism": 3});
    let known = json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["b"], "failed": ["gone"]}});
    let all =
        pods(&[("a", "-Succeeded", None), ("b", "Succeeded", None), ("c", "Failed", None), ("d", "Running", None)]);
    let mut state = state(job(spec, known), all);
    assert_eq!((state.succeeded, state.failed, state.active), (2, 2, 1));
    assert_eq!(track(&mut state), None);
    assert_eq!((state.status.succeeded, state.status.failed), (Some(2), Some(2)));
    assert_eq!(state.status.uncounted_terminated_pods, Some(Default::default()));
}

#[test]
fn expected_removals_are_not_counted_again() {
    let job = job(json!({}), json!({"failed": 1}));
    let spec = job.spec.clone().unwrap();
    let state = JobState::new(JobSyncInput {
        job,
        spec,
        pods: pods(&[("a", "Failed", None)]),
        expected_removals: ["a".to_owned()].into(),
        backoff: BackoffRecord::default(),
        now: now(),
    });
    assert_eq!(state.failed, 1);
}

#[test]
fn limits_end_the_job() {
    let check = |spec, status, all: &[(&str, &str, Option<i64>)], expected| {
        let state = state(job(spec, status), pods(all));
        assert_eq!(finished_reason(&state), expected);
    };
    check(json!({}), json!({"failed": 2}), &[], None);
    check(json!({}), json!({"failed": 2}), &[("a", "Failed", None)], Some("BackoffLimitExceeded"));
    check(json!({}), json!({"failed": 2}), &[("a", "deleted", None)], Some("BackoffLimitExceeded"));
    check(json!({"podReplacementPolicy": "Failed"}), json!({"failed": 2}), &[("a", "deleted", None)], None);
    let started = json!({"startTime": "2030-01-01T00:59:00Z"});
    check(json!({"activeDeadlineSeconds": 60}), started.clone(), &[], Some("DeadlineExceeded"));
    check(json!({"activeDeadlineSeconds": 61}), started.clone(), &[], None);
    check(json!({"activeDeadlineSeconds": 60, "suspend": true}), started, &[], None);
    let met =
        json!({"failed": 9, "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "Earlier"}]});
    check(json!({}), met, &[], Some("Earlier"));
}

#[test]
fn per_index_limits_end_the_job() {
    let check = |extra: Value, all: &[(&str, &str, Option<i64>)], expected, failed: &str| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0,
            "backoffLimit": i32::MAX});
        extra.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        let state = state(job(spec, json!({})), pods(all));
        assert_eq!(finished_reason(&state), expected);
        assert_eq!(state.failed_indexes.unwrap().to_string(), failed);
    };
    let one_failed = [("a", "Succeeded", Some(0)), ("b", "Failed", Some(1)), ("c", "Running", Some(2))];
    check(json!({}), &one_failed, None, "1");
    check(json!({"maxFailedIndexes": 0}), &one_failed, Some("MaxFailedIndexesExceeded"), "1");
    let all_ended = [("a", "Succeeded", Some(0)), ("b", "Failed", Some(1)), ("c", "Succeeded", Some(2))];
    check(json!({}), &all_ended, Some("FailedIndexes"), "1");
    check(json!({"backoffLimitPerIndex": 1}), &all_ended, None, "");
    let success = json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}});
    check(success, &one_failed, Some("SuccessPolicy"), "1");
}

#[test]
fn failed_pod_of_an_index_stays_until_it_is_replaced() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 3,
        "backoffLimit": i32::MAX});
    let mut waiting = state(job(spec.clone(), json!({})), pods(&[("a", "Failed", Some(0)), ("b", "Running", Some(1))]));
    assert!(matches!(plan_pods(&waiting), PodPlan::Create(indexes) if indexes == [Some(0)]));
    assert!(plan_tracking(&mut waiting, false).removable.is_empty());
    let all = pods(&[("a", "Failed", Some(0)), ("b", "Running", Some(1)), ("c", "Pending", Some(0))]);
    let mut replaced = state(job(spec, json!({})), all);
    assert_eq!(plan_tracking(&mut replaced, false).removable.len(), 1);
}

#[test]
fn desired_pods_follow_completions_and_parallelism() {
    let check = |spec, status, all: &[(&str, &str, Option<i64>)], expected: &str| {
        let plan = match plan_pods(&state(job(spec, status), pods(all))) {
            PodPlan::Keep => "keep".to_owned(),
            PodPlan::Delete(pods) => format!("delete {}", pods.len()),
            PodPlan::Create(indexes) => format!("create {:?}", indexes.into_iter().flatten().collect::<Vec<_>>()),
            PodPlan::Wait(delay) => format!("wait {}", delay.as_secs()),
        };
        assert_eq!(plan, expected);
    };
    let running = [("a", "Running", None), ("b", "Running", None)];
    check(json!({"parallelism": 3}), json!({}), &running, "create []");
    check(json!({"parallelism": 3}), json!({"succeeded": 1}), &running, "keep");
    check(json!({"parallelism": 1}), json!({}), &running, "delete 1");
    check(json!({"parallelism": 3, "completions": 3}), json!({"succeeded": 2}), &running, "delete 1");
    check(json!({"suspend": true}), json!({}), &running, "delete 2");
    let replaced_later = json!({"parallelism": 1, "podReplacementPolicy": "Failed"});
    check(replaced_later, json!({}), &[("a", "deleted", None)], "keep");
    check(json!({"parallelism": 1}), json!({}), &[("a", "deleted", None)], "wait 10");
    let indexed = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4});
    check(indexed.clone(), json!({"completedIndexes": "1"}), &[("a", "Running", Some(2))], "create [0, 3]");
    let surplus =
        [("a", "Running", Some(0)), ("b", "Running", Some(0)), ("c", "Running", Some(9)), ("d", "Running", None)];
    check(indexed, json!({}), &surplus, "delete 3");
}

#[test]
fn failures_delay_the_next_pod() {
    let mut failed = (*pod("a", "Failed", None)).clone();
    failed.metadata.creation_timestamp = serde_json::from_value(json!("2030-01-01T00:59:56Z")).unwrap();
    let plan = plan_pods(&state(job(json!({}), json!({})), vec![Arc::new(failed)]));
    assert!(matches!(plan, PodPlan::Wait(delay) if delay.as_secs() == 6), "{plan:?}");
}

#[test]
fn final_condition_waits_for_terminating_pods() {
    let failed = json!({"failed": 3});
    let mut ending = state(job(json!({}), failed.clone()), pods(&[("a", "deleted", None)]));
    assert_eq!(track(&mut ending), None);
    assert_eq!(ending.status.conditions.as_ref().unwrap()[0].type_, "FailureTarget");
    assert_eq!(ending.status.failed, Some(4));
    let mut ended = state(job(json!({}), failed), vec![]);
    assert_eq!(track(&mut ended).as_deref(), Some("Failed"));
}
