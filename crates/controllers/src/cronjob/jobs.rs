//! Jobs of a CronJob: their names, the Job built from the template, and the oldest of the history.

use std::{cmp::Reverse, sync::Arc};

use api::cron::load_time_zone;
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::schedule::schedule_of;
use crate::{controller_ref, job_conditions::finished_condition};

const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Returns the name of the Job of a scheduled time, which keeps it from being started twice.
pub(super) fn job_name(cron_job: &CronJob, scheduled: Timestamp) -> String {
    format!("{}-{}", cron_job.name_any(), scheduled.as_second() / 60)
}

/// Builds the Job of a scheduled time.
pub(super) fn job_from_template(cron_job: &CronJob, scheduled: Timestamp) -> Job {
    let template = cron_job.spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_TIMESTAMP.into(), format_in_time_zone(cron_job, scheduled));
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron_job, scheduled)),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_ref::new_controller_ref(cron_job)]),
            ..Default::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Formats a time as RFC 3339 in the CronJob's time zone, UTC without one.
fn format_in_time_zone(cron_job: &CronJob, time: Timestamp) -> String {
    let zone = load_time_zone(schedule_of(cron_job).1.unwrap_or("")).unwrap_or(jiff::tz::TimeZone::UTC);
    let text = time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    text.strip_suffix("+00:00").map(|local| format!("{local}Z")).unwrap_or(text)
}

/// Returns the oldest Jobs that ended with the condition and exceed the history limit.
pub(super) fn jobs_beyond_limit(jobs: &[Arc<Job>], condition: &str, limit: Option<i32>) -> Vec<Arc<Job>> {
    let Some(limit) = limit else { return Vec::new() };
    let has_ended = |job: &&Arc<Job>| finished_condition(job).is_some_and(|ended| ended.type_ == condition);
    let mut ended: Vec<_> = jobs.iter().filter(has_ended).cloned().collect();
    // Jobs that never started come last.
    ended.sort_by_cached_key(|job| {
        let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        (Reverse(start.is_some()), start, job.name_any())
    });
    ended.truncate(ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
    ended
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_has_the_scheduled_time_in_name_and_annotation() {
        let check = |zone: Option<&str>, expected: &str| {
            let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}});
            let cron_job: CronJob = serde_json::from_value(json!({"metadata": {"name": "c", "uid": "1"},
                "spec": {"schedule": "* * * * *", "timeZone": zone, "jobTemplate": template}}))
            .unwrap();
            let job = job_from_template(&cron_job, "2030-01-01T12:00:00Z".parse().unwrap());
            assert_eq!(job.name_any(), "c-31558320");
            assert_eq!((job.annotations()[SCHEDULED_TIMESTAMP].as_str(), job.annotations().len()), (expected, 2));
            assert_eq!(job.owner_references()[0].kind, "CronJob");
        };
        check(None, "2030-01-01T12:00:00Z");
        check(Some("Europe/London"), "2030-01-01T12:00:00Z");
        check(Some("Asia/Kolkata"), "2030-01-01T17:30:00+05:30");
    }

    #[test]
    fn oldest_jobs_exceed_the_limit() {
        let job = |name: &str, condition: &str, start: Option<&str>| -> Arc<Job> {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"name": name}, "status": {"startTime": start,
                    "conditions": [{"type": condition, "status": "True"}]}}))
                .unwrap(),
            )
        };
        let jobs = [
            job("new", "Complete", Some("2030-01-01T03:00:00Z")),
            job("unstarted", "Complete", None),
            job("failed", "Failed", Some("2030-01-01T00:00:00Z")),
            job("old", "Complete", Some("2030-01-01T01:00:00Z")),
            job("running", "Suspended", Some("2030-01-01T00:00:00Z")),
        ];
        let names = |condition, limit| -> Vec<String> {
            jobs_beyond_limit(&jobs, condition, limit).iter().map(|job| job.name_any()).collect()
        };
        assert_eq!(names("Complete", Some(1)), ["old", "new"]);
        assert_eq!(names("Failed", Some(0)), ["failed"]);
        assert!(names("Failed", Some(1)).is_empty() && names("Complete", None).is_empty());
    }
}
