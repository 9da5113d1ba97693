//! The state of a Job at the start of a sync: its pods, counters, indexes, and the end state that they imply.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{Job, JobCondition, JobSpec, JobStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    backoff::{BackoffRecord, finished_time},
    intervals::IndexIntervals,
    pods::{
        absolute_index_failure_count, completion_index, has_tracking_finalizer, index_failure_count, is_pod_failed,
        pod_uid, valid_completion_index,
    },
    policies::{PodFailureAction, match_success_policy, pod_failure_action},
    spec::{index_count, is_indexed, is_suspended, new_condition, true_condition},
};
use crate::{
    pod_availability::{is_pod_active, is_pod_ready, is_pod_terminal, pod_phase},
    pod_view::PodView,
};

/// Condition types of a Job.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// Inputs of a sync.
pub(super) struct JobSyncInput {
    pub(super) job: Job,
    pub(super) spec: JobSpec,
    pub(super) pods: Vec<Arc<PodView>>,
    /// Uids of pods whose finalizer was removed, which the cache may not show yet.
    pub(super) expected_removals: HashSet<String>,
    pub(super) backoff: BackoffRecord,
    pub(super) now: Timestamp,
}

/// A Job in a sync. The status is taken out of `job` and written back with it.
pub(super) struct JobState {
    pub(super) job: Job,
    pub(super) spec: JobSpec,
    pub(super) status: JobStatus,
    pub(super) pods: Vec<Arc<PodView>>,
    pub(super) active_pods: Vec<Arc<PodView>>,
    pub(super) active: i32,
    pub(super) ready: i32,
    pub(super) terminating: i32,
    /// Succeeded pods, or indexes of an Indexed Job, with those that the status does not count yet.
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    pub(super) uncounted_succeeded: HashSet<String>,
    pub(super) uncounted_failed: HashSet<String>,
    pub(super) expected_removals: HashSet<String>,
    /// Succeeded indexes that the status has already.
    pub(super) counted_indexes: IndexIntervals,
    pub(super) succeeded_indexes: IndexIntervals,
    /// Present if the Job has `backoffLimitPerIndex`.
    pub(super) failed_indexes: Option<IndexIntervals>,
    /// The last failed pod of each index that has no replacement yet: it stays until then, for its failure counts.
    pub(super) delayed_deletions: HashMap<i64, Arc<PodView>>,
    pub(super) backoff: BackoffRecord,
    /// Condition of the Job's end, once it is certain.
    pub(super) finished: Option<JobCondition>,
    /// Time until `activeDeadlineSeconds` passes.
    pub(super) deadline_in: Option<Duration>,
    pub(super) now: Timestamp,
}

impl JobState {
    /// Counts the pods and evaluates the end of the Job, except for reached completions.
    pub(super) fn new(input: JobSyncInput) -> Self {
        let JobSyncInput { mut job, spec, pods, expected_removals, backoff, now } = input;
        let mut status = job.status.take().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        let set = |uids: &Option<Vec<String>>| uids.iter().flatten().cloned().collect::<HashSet<_>>();
        let (uncounted_succeeded, uncounted_failed) = (set(&uncounted.succeeded), set(&uncounted.failed));
        let active_pods: Vec<_> = pods.iter().filter(|pod| is_pod_active(pod)).cloned().collect();
        let terminating =
            pods.iter().filter(|pod| !is_pod_terminal(pod) && pod.metadata.deletion_timestamp.is_some()).count();
        let mut state = Self {
            active: count_i32(active_pods.len()),
            ready: count_i32(active_pods.iter().filter(|pod| is_pod_ready(pod)).count()),
            terminating: count_i32(terminating),
            succeeded: 0,
            failed: 0,
            uncounted_succeeded,
            uncounted_failed,
            expected_removals,
            counted_indexes: IndexIntervals::default(),
            succeeded_indexes: IndexIntervals::default(),
            failed_indexes: None,
            delayed_deletions: HashMap::new(),
            backoff,
            finished: None,
            deadline_in: None,
            job,
            spec,
            status,
            pods,
            active_pods,
            now,
        };
        state.count_finished_pods();
        if state.status.start_time.is_none() && !is_suspended(&state.spec) {
            state.status.start_time = Some(Time(now));
        }
        state.evaluate_conditions();
        state.evaluate_limits();
        if is_indexed(&state.spec) {
            state.evaluate_indexes();
        }
        state
    }

    fn count_finished_pods(&mut self) {
        let succeeded: Vec<_> =
            self.uncounted_pods(&self.uncounted_succeeded).filter(|pod| pod_phase(pod) == "Succeeded").collect();
        let failed: Vec<_> =
            self.uncounted_pods(&self.uncounted_failed).filter(|pod| is_pod_failed(pod, &self.spec)).collect();
        let counted = failed.iter().filter(|pod| self.failure_action(pod).counts()).count();
        let new_succeeded = succeeded.len() + self.uncounted_succeeded.len();
        let new_failed = counted + self.uncounted_failed.len();
        let times = |pods: Vec<&Arc<PodView>>| pods.into_iter().map(|pod| finished_time(pod)).collect();
        self.backoff = self.backoff.with_finished_pods(times(succeeded), times(failed));
        self.succeeded = self.status.succeeded.unwrap_or(0) + count_i32(new_succeeded);
        self.failed = self.status.failed.unwrap_or(0) + count_i32(new_failed);
    }

    /// Returns the pods that the status does not know of: with finalizer, a valid index, and not in `uncounted`.
    fn uncounted_pods<'a>(&'a self, uncounted: &'a HashSet<String>) -> impl Iterator<Item = &'a Arc<PodView>> {
        self.pods.iter().filter(|pod| {
            self.is_tracked(pod)
                && !uncounted.contains(pod_uid(pod))
                && (!is_indexed(&self.spec) || valid_completion_index(pod, index_count(&self.spec)).is_some())
        })
    }

    /// Whether the pod has the tracking finalizer, and this controller has not removed it.
    pub(super) fn is_tracked(&self, pod: &PodView) -> bool {
        has_tracking_finalizer(pod) && !self.expected_removals.contains(pod_uid(pod))
    }

    pub(super) fn failure_action(&self, pod: &PodView) -> PodFailureAction {
        pod_failure_action(self.spec.pod_failure_policy.as_ref(), pod)
    }

    /// Respects an end that an earlier sync decided, then the pod failure policy.
    fn evaluate_conditions(&mut self) {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        self.finished = if let Some(condition) = true_condition(conditions, SUCCESS_CRITERIA_MET) {
            Some(condition.clone())
        } else if let Some(target) = true_condition(conditions, FAILURE_TARGET) {
            Some(failed_condition(target, self.now))
        } else {
            let message = self.fail_job_message();
            message.map(|message| new_condition(FAILURE_TARGET, "PodFailurePolicy", &message, self.now))
        };
    }

    fn fail_job_message(&self) -> Option<String> {
        self.spec.pod_failure_policy.as_ref()?;
        let mut failed = self.pods.iter().filter(|pod| is_pod_failed(pod, &self.spec));
        failed.find_map(|pod| match self.failure_action(pod) {
            PodFailureAction::FailJob(message) => Some(message),
            _ => None,
        })
    }

    /// Evaluates `backoffLimit` and `activeDeadlineSeconds`.
    fn evaluate_limits(&mut self) {
        if self.finished.is_some() {
            return;
        }
        let deadline = self.time_until_deadline();
        if self.failed > self.backoff_limit() || self.is_past_backoff_limit_on_failure() {
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        } else if deadline.is_some_and(|left| left.is_zero()) {
            self.fail("DeadlineExceeded", "Job was active longer than specified deadline");
        } else {
            self.deadline_in = deadline;
        }
    }

    fn fail(&mut self, reason: &str, message: &str) {
        self.finished = Some(new_condition(FAILURE_TARGET, reason, message, self.now));
    }

    fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(6)
    }

    /// Whether the containers of `restartPolicy: OnFailure` pods restarted as often as the limit allows.
    fn is_past_backoff_limit_on_failure(&self) -> bool {
        let restart_policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if restart_policy != Some("OnFailure") {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(pod_phase(pod), "Running" | "Pending"));
        let statuses = running.filter_map(|pod| pod.status.as_ref());
        let containers =
            statuses.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses));
        let restarts: i32 = containers.flatten().map(|container| container.restart_count).sum();
        restarts >= self.backoff_limit().max(1)
    }

    fn time_until_deadline(&self) -> Option<Duration> {
        let seconds = self.spec.active_deadline_seconds.filter(|_| !is_suspended(&self.spec))?;
        let start = self.status.start_time.as_ref()?.0;
        let left = jiff::SignedDuration::from_secs(seconds) - self.now.duration_since(start);
        Some(Duration::try_from(left).unwrap_or_default())
    }

    /// Counts indexes and evaluates `backoffLimitPerIndex`, `maxFailedIndexes` and the success policy.
    fn evaluate_indexes(&mut self) {
        let completions = index_count(&self.spec);
        let counted = self.status.completed_indexes.as_deref().unwrap_or("");
        self.counted_indexes = IndexIntervals::parse(counted, completions);
        let indexes_of = |state: &Self, matches: &dyn Fn(&PodView) -> bool| -> Vec<i64> {
            let pods = state.pods.iter().filter(|pod| has_tracking_finalizer(pod) && matches(pod));
            pods.filter_map(|pod| valid_completion_index(pod, completions)).collect()
        };
        self.succeeded_indexes =
            self.counted_indexes.with_indexes(indexes_of(self, &|pod| pod_phase(pod) == "Succeeded"));
        self.succeeded = total_i32(&self.succeeded_indexes);
        if let Some(limit) = self.spec.backoff_limit_per_index {
            let known = IndexIntervals::parse(self.status.failed_indexes.as_deref().unwrap_or(""), completions);
            let failed = known.with_indexes(indexes_of(self, &|pod| self.is_index_failed(pod, limit)));
            self.evaluate_failed_indexes(&failed);
            self.delayed_deletions = self.find_delayed_deletions(&failed);
            self.failed_indexes = Some(failed);
        }
        if self.finished.is_none() {
            let policy = self.spec.success_policy.as_ref();
            let message = match_success_policy(policy, completions, &self.succeeded_indexes);
            self.finished =
                message.map(|message| new_condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", &message, self.now));
        }
    }

    fn is_index_failed(&self, pod: &PodView, limit: i32) -> bool {
        is_pod_failed(pod, &self.spec)
            && match self.failure_action(pod) {
                PodFailureAction::FailIndex => true,
                action => action.counts() && index_failure_count(pod) >= limit,
            }
    }

    fn evaluate_failed_indexes(&mut self, failed: &IndexIntervals) {
        if self.finished.is_some() {
            return;
        }
        let total = failed.total();
        if self.spec.max_failed_indexes.is_some_and(|max| total > max.into()) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            self.fail("MaxFailedIndexesExceeded", message);
        } else if total > 0 && total + self.succeeded_indexes.total() >= index_count(&self.spec).into() {
            self.fail("FailedIndexes", "Job has failed indexes");
        }
    }

    fn find_delayed_deletions(&self, failed: &IndexIntervals) -> HashMap<i64, Arc<PodView>> {
        let active: HashSet<i64> = self.active_pods.iter().filter_map(|pod| completion_index(pod)).collect();
        let none = HashSet::new();
        let mut delayed: HashMap<i64, Arc<PodView>> = HashMap::new();
        for pod in self.uncounted_pods(&none).filter(|pod| is_pod_failed(pod, &self.spec)) {
            let Some(index) = completion_index(pod) else { continue };
            if self.succeeded_indexes.contains(index) || failed.contains(index) || active.contains(&index) {
                continue;
            }
            let is_later = delayed.get(&index).is_none_or(|last| {
                absolute_index_failure_count(last) <= absolute_index_failure_count(pod)
                    && finished_time(pod) >= finished_time(last)
            });
            if is_later {
                delayed.insert(index, pod.clone());
            }
        }
        delayed
    }
}

/// Builds the condition `Failed` from the interim `FailureTarget`.
pub(super) fn failed_condition(target: &JobCondition, now: Timestamp) -> JobCondition {
    let (reason, message) = (target.reason.as_deref().unwrap_or(""), target.message.as_deref().unwrap_or(""));
    new_condition("Failed", reason, message, now)
}

/// Converts a count.
pub(super) fn count_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns the number of indexes.
pub(super) fn total_i32(indexes: &IndexIntervals) -> i32 {
    i32::try_from(indexes.total()).unwrap_or(i32::MAX)
}
