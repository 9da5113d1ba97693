//! Rows of Jobs and CronJobs.

use super::{
    format::{containers, selector_or_none},
    printer::{AGE, Column, NAME, boolean, integer, text, wide},
    row::Row,
};
use crate::{Value, time};

pub(super) const JOB: &[Column] = &[
    NAME,
    text("Status"),
    text("Completions"),
    text("Duration"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

/// Conditions that say what a job is, the strongest first: ended, and on the way.
const ENDED: &[&str] = &["Complete", "Failed"];
const GOING: &[&str] = &["Suspended", "FailureTarget", "SuccessCriteriaMet"];

pub(super) fn job(row: &Row) -> Vec<Value> {
    let [names, images] = containers(row.list(&["spec", "template", "spec", "containers"]));
    vec![
        row.name(),
        status(row).into(),
        completions(row).into(),
        duration(row).into(),
        row.age(),
        names,
        images,
        selector_or_none(&row.object["spec"]["selector"]).into(),
    ]
}

fn status(row: &Row) -> &'static str {
    let first = |conditions: &[&'static str]| conditions.iter().copied().find(|condition| row.holds(condition));
    match first(ENDED) {
        Some(ended) => ended,
        None if row.deleting() => "Terminating",
        None => first(GOING).unwrap_or("Running"),
    }
}

fn completions(row: &Row) -> String {
    let succeeded = row.number(&["status", "succeeded"]);
    match (row.at(&["spec", "completions"]).and_then(Value::as_i64), row.number(&["spec", "parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(row: &Row) -> String {
    let Some(start) = time::parse(row.text(&["status", "startTime"])) else { return String::new() };
    let end = time::parse(row.text(&["status", "completionTime"])).unwrap_or(row.now);
    time::human(end.as_second() - start.as_second())
}

pub(super) const CRON_JOB: &[Column] = &[
    NAME,
    text("Schedule"),
    text("Timezone"),
    boolean("Suspend"),
    integer("Active"),
    text("Last Schedule"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub(super) fn cron_job(row: &Row) -> Vec<Value> {
    let job = ["spec", "jobTemplate", "spec"];
    let [names, images] = containers(row.list(&[job.as_slice(), &["template", "spec", "containers"]].concat()));
    let suspend = match row.at(&["spec", "suspend"]).and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = row.at(&["status", "lastScheduleTime"]).map(|_| row.since(&["status", "lastScheduleTime"]));
    vec![
        row.name(),
        row.text(&["spec", "schedule"]).into(),
        row.at(&["spec", "timeZone"]).and_then(Value::as_str).unwrap_or("<none>").into(),
        suspend.into(),
        row.count(&["status", "active"]).into(),
        last.unwrap_or_else(|| "<none>".to_owned()).into(),
        row.age(),
        names,
        images,
        selector_or_none(&row.object["spec"]["jobTemplate"]["spec"]["selector"]).into(),
    ]
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_say_how_far_they_are() {
        let check = |object: Value, want: [&str; 3]| {
            let now = "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap();
            assert_eq!(job(&Row { object: &object, now })[1..4], want.map(Value::from));
        };
        let started = json!({"startTime": "2026-01-01T00:05:00Z"});
        check(json!({"spec": {"completions": 3}, "status": started}), ["Running", "0/3", "5m"]);
        check(json!({"spec": {"parallelism": 4}, "status": {"succeeded": 1}}), ["Running", "1/1 of 4", ""]);
        let done = json!({"startTime": "2026-01-01T00:05:00Z", "completionTime": "2026-01-01T00:05:07Z", "succeeded": 1,
            "conditions": [{"type": "Complete", "status": "True"}]});
        check(json!({"spec": {"completions": 1}, "status": done}), ["Complete", "1/1", "7s"]);
    }
}
