//! In-memory state of the Job controller between syncs. A restart loses it without harm: the caches are then in sync
//! with the controller's earlier writes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
};

use k8s_openapi::api::batch::v1::Job;

use super::{backoff::BackoffRecord, pods::pod_uid};
use crate::{object_key::ObjectKey, pod_view::PodView};

/// Memory per Job.
#[derive(Default)]
pub(super) struct JobMemory {
    jobs: Mutex<HashMap<ObjectKey, JobRecord>>,
}

#[derive(Default)]
struct JobRecord {
    backoff: BackoffRecord,
    /// Uids of pods whose finalizer was removed, until the cache shows it.
    expected_removals: HashSet<String>,
    /// Uid of a Job whose final status was written.
    finished: Option<String>,
}

impl JobMemory {
    /// Returns the pod failures of a Job.
    pub(super) fn backoff(&self, key: &ObjectKey) -> BackoffRecord {
        self.lock().get(key).map(|record| record.backoff).unwrap_or_default()
    }

    /// Replaces the pod failures of a Job.
    pub(super) fn set_backoff(&self, key: &ObjectKey, backoff: BackoffRecord) {
        self.lock().entry(key.clone()).or_default().backoff = backoff;
    }

    /// Expects that the finalizers of these pods are removed.
    pub(super) fn expect_removals<'a>(&self, key: &ObjectKey, pods: impl Iterator<Item = &'a PodView>) {
        let uids = pods.map(|pod| pod_uid(pod).to_owned());
        self.lock().entry(key.clone()).or_default().expected_removals.extend(uids);
    }

    /// Records that a finalizer is gone, or that its removal failed.
    pub(super) fn removal_observed(&self, key: &ObjectKey, pod: &PodView) {
        if let Some(record) = self.lock().get_mut(key) {
            record.expected_removals.remove(pod_uid(pod));
        }
    }

    /// Returns the uids of pods whose finalizer was removed.
    pub(super) fn expected_removals(&self, key: &ObjectKey) -> HashSet<String> {
        self.lock().get(key).map(|record| record.expected_removals.clone()).unwrap_or_default()
    }

    /// Records that the final status of a Job was written.
    pub(super) fn set_finished(&self, key: &ObjectKey, job: &Job) {
        self.lock().entry(key.clone()).or_default().finished = job.metadata.uid.clone();
    }

    /// Whether the final status of this Job was written.
    pub(super) fn is_finished(&self, key: &ObjectKey, job: &Job) -> bool {
        job.metadata.uid.is_some() && self.lock().get(key).is_some_and(|record| record.finished == job.metadata.uid)
    }

    /// Drops the memory of a Job that is finished or deleted.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, JobRecord>> {
        self.jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
