//! Times of a CronJob: those missed since its last start, and the next.

use std::time::Duration;

use api::{
    ParseError,
    cron::{CronSchedule, load_time_zone},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

/// Delay after the scheduled time, for clocks that differ.
const NEXT_SCHEDULE_DELTA: SignedDuration = SignedDuration::from_millis(100);
/// Number of missed starts above which a warning is given.
const MANY_MISSED: i64 = 100;

/// The schedule is well-formed, but has no times, such as 31 February.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub(super) struct ImpossibleSchedule;

/// Number of starts that were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissedSchedules {
    None,
    Few,
    Many,
}

/// The most recent scheduled time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecentSchedule {
    /// Time from which on scheduled times were searched.
    earliest: Timestamp,
    /// The last scheduled time that is not after now.
    pub(super) most_recent: Option<Timestamp>,
    pub(super) missed: MissedSchedules,
}

/// Parses the CronJob's schedule in its time zone.
pub(super) fn parse_schedule(cron_job: &CronJob) -> Result<CronSchedule, ParseError> {
    let (schedule, zone) = schedule_of(cron_job);
    match zone.filter(|zone| !schedule.contains("TZ") && load_time_zone(zone).is_ok()) {
        Some(zone) => CronSchedule::parse(&format!("TZ={zone} {schedule}")),
        None => CronSchedule::parse(schedule),
    }
}

/// Returns `spec.schedule` and `spec.timeZone`.
pub(super) fn schedule_of(cron_job: &CronJob) -> (&str, Option<&str>) {
    (&cron_job.spec.schedule, cron_job.spec.time_zone.as_deref())
}

/// Finds the scheduled time to start a Job for. `since_deadline` leaves out times before `startingDeadlineSeconds`.
pub(super) fn most_recent_schedule(
    cron_job: &CronJob,
    schedule: &CronSchedule,
    now: Timestamp,
    since_deadline: bool,
) -> Result<RecentSchedule, ImpossibleSchedule> {
    let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let earliest = last.or(cron_job.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
    let deadline = cron_job.spec.starting_deadline_seconds.filter(|_| since_deadline);
    let deadline = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    let earliest = deadline.map_or(earliest, |deadline| deadline.max(earliest));

    let result = |most_recent, missed| Ok(RecentSchedule { earliest, most_recent, missed });
    let first = schedule.next_after(earliest).ok_or(ImpossibleSchedule)?;
    if now < first {
        return result(None, MissedSchedules::None);
    }
    let second = schedule.next_after(first).ok_or(ImpossibleSchedule)?;
    if now < second {
        return result(Some(first), MissedSchedules::None);
    }
    let interval = second.as_second() - first.as_second();
    if interval < 1 {
        return Err(ImpossibleSchedule);
    }
    // An estimate that takes the first interval for all; the search starts one interval earlier for those that vary.
    let missed = now.duration_since(first).as_secs() / interval + 1;
    let start = first.as_second().saturating_add((missed - 2).saturating_mul(interval));
    let mut most_recent = None;
    let mut next = Timestamp::from_second(start).ok().and_then(|start| schedule.next_after(start));
    while let Some(time) = next.filter(|time| *time <= now) {
        most_recent = Some(time);
        next = schedule.next_after(time);
    }
    result(most_recent, if missed > MANY_MISSED { MissedSchedules::Many } else { MissedSchedules::Few })
}

/// Returns the time until the next sync of the CronJob.
pub(super) fn time_until_next_schedule(cron_job: &CronJob, schedule: &CronSchedule, now: Timestamp) -> Duration {
    let from = match most_recent_schedule(cron_job, schedule, now, false) {
        Ok(RecentSchedule { most_recent: Some(time), .. }) => time,
        Ok(RecentSchedule { missed: MissedSchedules::None, earliest, .. }) => earliest,
        _ => now,
    };
    let next = schedule.next_after(from).map(|next| next.duration_since(now) + NEXT_SCHEDULE_DELTA);
    next.and_then(|next| Duration::try_from(next).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron_job(schedule: &str, last: Value, deadline: Value) -> CronJob {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "creationTimestamp": "2030-01-01T10:00:00Z"},
            "spec": {"schedule": schedule, "timeZone": "Etc/UTC", "startingDeadlineSeconds": deadline,
                "jobTemplate": {}},
            "status": {"lastScheduleTime": last}}))
        .unwrap()
    }

    #[test]
    fn missed_starts_are_found() {
        let check = |schedule, last, deadline, now: &str, expected: Option<&str>, missed| {
            let cron_job = cron_job(schedule, last, deadline);
            let parsed = parse_schedule(&cron_job).unwrap();
            let found = most_recent_schedule(&cron_job, &parsed, now.parse().unwrap(), true).unwrap();
            assert_eq!(
                (found.most_recent, found.missed),
                (expected.map(|time| time.parse().unwrap()), missed),
                "{now}"
            );
        };
        use MissedSchedules::{Few, Many, None as NoneMissed};
        let none = || Value::Null;
        check("0 * * * *", none(), none(), "2030-01-01T10:30:00Z", None, NoneMissed);
        check("0 * * * *", none(), none(), "2030-01-01T11:00:10Z", Some("2030-01-01T11:00:00Z"), NoneMissed);
        check("0 * * * *", none(), none(), "2030-01-01T14:30:00Z", Some("2030-01-01T14:00:00Z"), Few);
        check("0 * * * *", none(), none(), "2030-02-01T14:30:00Z", Some("2030-02-01T14:00:00Z"), Many);
        let last = json!("2030-01-01T13:00:00Z");
        check("0 * * * *", last, none(), "2030-01-01T13:59:00Z", None, NoneMissed);
        check("0 * * * *", none(), json!(60), "2030-02-01T14:30:00Z", None, NoneMissed);
        let weekdays = "30 6-16/4 * * 1-5";
        check(
            weekdays,
            json!("2030-01-04T14:30:00Z"),
            none(),
            "2030-01-07T11:00:00Z",
            Some("2030-01-07T10:30:00Z"),
            Few,
        );
        check(
            "@every 7m",
            json!("2030-01-01T10:00:05Z"),
            none(),
            "2030-01-01T10:20:00Z",
            Some("2030-01-01T10:14:05Z"),
            Few,
        );
    }

    #[test]
    fn impossible_schedule_is_an_error() {
        let cron_job = cron_job("59 23 31 2 *", Value::Null, Value::Null);
        let schedule = parse_schedule(&cron_job).unwrap();
        let now = "2030-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(most_recent_schedule(&cron_job, &schedule, now, true), Err(ImpossibleSchedule));
    }

    #[test]
    fn next_sync_is_just_after_the_scheduled_time() {
        let check = |schedule, last, now: &str, millis| {
            let cron_job = cron_job(schedule, last, Value::Null);
            let schedule = parse_schedule(&cron_job).unwrap();
            let next = time_until_next_schedule(&cron_job, &schedule, now.parse().unwrap());
            assert_eq!(next, Duration::from_millis(millis), "{now}");
        };
        check("0 * * * *", Value::Null, "2030-01-01T10:59:00Z", 60_100);
        check("0 * * * *", json!("2030-01-01T11:00:00Z"), "2030-01-01T11:00:01Z", 59 * 60_000 + 59_100);
        check("0 * * * *", Value::Null, "2030-01-01T17:59:00Z", 60_100);
    }
}
