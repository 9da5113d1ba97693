//! ttl-after-finished-controller: deletes finished Jobs after `spec.ttlSecondsAfterFinished`.

use std::time::Duration;

use client::{RequeueAction, ResourceEvent, SharedInformer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    job_conditions::{finished_condition, is_job_finished},
    object_key::ObjectKey,
};

/// A Job could not be deleted after its TTL.
#[derive(Debug, thiserror::Error)]
enum TtlAfterFinishedError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the finished Job has no finish time")]
    NoFinishTime,
}

struct TtlAfterFinishedController {
    client: Client,
    jobs: SharedInformer<Job>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (client, jobs) = (context.client.clone(), context.informers.informer_for());
    run_controller(&context, |_| TtlAfterFinishedController { client, jobs }).await;
}

impl Controller for TtlAfterFinishedController {
    type Key = ObjectKey;
    type Error = TtlAfterFinishedError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.jobs, |_, event, queue| match event {
            ResourceEvent::Deleted(_) => {}
            ResourceEvent::Added(job) | ResourceEvent::Updated { new: job, .. } => {
                if needs_cleanup(job) {
                    queue.add(ObjectKey::from_object(job.as_ref()));
                }
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, TtlAfterFinishedError> {
        let Some(job) = self.jobs.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        match time_until_expiry(&job, Timestamp::now())? {
            None => return Ok(RequeueAction::AwaitChange),
            Some(Duration::ZERO) => {}
            Some(left) => return Ok(RequeueAction::After(left)),
        }
        // The cached TTL may be stale.
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(fresh) = api.get_opt(&key.name).await? else { return Ok(RequeueAction::AwaitChange) };
        match time_until_expiry(&fresh, Timestamp::now())? {
            None => return Ok(RequeueAction::AwaitChange),
            Some(Duration::ZERO) => {}
            Some(left) => return Ok(RequeueAction::After(left)),
        }
        let this_one = Preconditions { uid: fresh.metadata.uid.clone(), ..Default::default() };
        api.delete(&key.name, &DeleteParams::foreground().preconditions(this_one)).await?;
        Ok(RequeueAction::AwaitChange)
    }
}

fn needs_cleanup(job: &Job) -> bool {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    job.metadata.deletion_timestamp.is_none() && ttl.is_some() && is_job_finished(job)
}

/// Returns the time until the TTL passes; `None` if the Job is not to be deleted.
fn time_until_expiry(job: &Job, now: Timestamp) -> Result<Option<Duration>, TtlAfterFinishedError> {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished).filter(|_| needs_cleanup(job));
    let Some((ttl, condition)) = ttl.zip(finished_condition(job)) else { return Ok(None) };
    let finished = condition.last_transition_time.as_ref().ok_or(TtlAfterFinishedError::NoFinishTime)?.0;
    let left = SignedDuration::from_secs(ttl.into()) - now.duration_since(finished);
    Ok(Some(Duration::try_from(left).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ttl_counts_from_the_finish_time() {
        let check = |ttl: Value, conditions: Value, expected: Option<u64>| {
            let job = json!({"metadata": {}, "status": {"conditions": conditions},
                "spec": {"ttlSecondsAfterFinished": ttl, "template": {}}});
            let job: Job = serde_json::from_value(job).unwrap();
            let left = time_until_expiry(&job, "2030-01-01T00:00:10Z".parse().unwrap()).unwrap();
            assert_eq!(left, expected.map(Duration::from_secs));
        };
        let finished = json!([{"type": "Failed", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
        check(json!(15), finished.clone(), Some(5));
        check(json!(10), finished.clone(), Some(0));
        check(json!(0), finished.clone(), Some(0));
        check(Value::Null, finished, None);
        check(json!(0), json!([{"type": "SuccessCriteriaMet", "status": "True"}]), None);
    }
}
