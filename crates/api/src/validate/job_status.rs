//! Validation of the status of jobs. A rule holds only for what a change touches, so that old faults do not block it.

use super::{Errors, at::At, error::Bad, job_policy, render::same, rules::Functions};

pub(super) const FUNCTIONS: Functions = functions! { job_status };

/// Whether a condition is true.
fn is(job: &At, kind: &str) -> bool {
    let status = job.get("status");
    let list = status.get("conditions");
    list.items().any(|condition| condition.get("type").text() == kind && condition.get("status").text() == "True")
}

/// The faults of a changed status.
fn job_status(new: &At, e: &mut Errors) {
    let old = &new.before();
    let (status, before) = (new.get("status"), old.get("status"));
    uncounted(&status, e);
    conditions(new, old, e);
    times(new, old, e);
    finished(new, old, e);
    indexes(new, old, e);
    let (ready, active) = (status.get("ready"), status.get("active"));
    let touched = |field: &str| !same(status.get(field).value, before.get(field).value);
    if (touched("ready") || touched("active")) && ready.int() > active.int() {
        ready.invalid(e, "cannot set more ready pods than active");
    }
    success(new, e);
    decreases(new, old, e);
}

fn uncounted(status: &At, e: &mut Errors) {
    let lists = status.get("uncountedTerminatedPods");
    let mut seen: Vec<&str> = Vec::new();
    for list in ["succeeded", "failed"] {
        for uid in lists.get(list).items() {
            if uid.is_empty() {
                uid.invalid_text(e, "must not be empty");
            } else if seen.contains(&uid.text()) {
                uid.duplicate(e, uid.text());
            } else {
                seen.push(uid.text());
            }
        }
    }
}

fn conditions(new: &At, old: &At, e: &mut Errors) {
    let status = new.get("status");
    let list = status.get("conditions");
    let complete = is(new, "Complete");
    let newly = complete != is(old, "Complete");
    if complete && is(new, "Failed") && (newly || !is(old, "Failed")) {
        list.invalid_as(e, Bad::Omitted, "cannot set Complete=True and Failed=true conditions");
    }
    if complete && is(new, "FailureTarget") && (newly || !is(old, "FailureTarget")) {
        list.invalid_as(e, Bad::Omitted, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if is(new, "Failed") && !is(new, "FailureTarget") && !is(old, "Failed") {
        let message = "cannot set Failed=True condition without the FailureTarget=true condition";
        list.invalid_as(e, Bad::Omitted, message);
    }
    if complete && !is(new, "SuccessCriteriaMet") && newly {
        let message = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        list.invalid_as(e, Bad::Omitted, message);
    }
}

fn times(new: &At, old: &At, e: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    let changed = |field: &str| !same(status.get(field).value, before.get(field).value);
    let complete = is(new, "Complete");
    let newly = complete != is(old, "Complete");
    if end.exists() && !complete && changed("completionTime") {
        end.invalid(e, "cannot set completionTime when there is no Complete=True condition");
    }
    if !end.exists() && complete && newly {
        end.required(e, "completionTime is required for Complete jobs");
    }
    let reversed = start.exists() && end.exists() && end.text() < start.text();
    if reversed && (changed("startTime") || changed("completionTime")) {
        end.invalid(e, "must be equal to or after `startTime`");
    }
}

fn finished(new: &At, old: &At, e: &mut Errors) {
    let ended = |job: &At| is(job, "Complete") || is(job, "Failed");
    if !ended(new) {
        return;
    }
    let (status, before) = (new.get("status"), old.get("status"));
    let newly = !ended(old);
    let changed = |field: &str| newly || !same(status.get(field).value, before.get(field).value);
    if status.get("active").int() > 0 && changed("active") {
        status.get("active").invalid(e, "active>0 is invalid for finished job");
    }
    if !status.get("startTime").exists() && changed("startTime") {
        status.get("startTime").required(e, "startTime is required for finished job");
    }
    let pods = status.get("uncountedTerminatedPods");
    if !(pods.get("succeeded").is_empty() && pods.get("failed").is_empty()) && changed("uncountedTerminatedPods") {
        pods.invalid_struct(e, "batch/v1.UncountedTerminatedPods", "must be empty for finished job");
    }
    if status.get("terminating").int() > 0 && changed("terminating") {
        status.get("terminating").invalid(e, "terminating>0 is invalid for finished job");
    }
}

fn indexes(new: &At, old: &At, e: &mut Errors) {
    let (spec, status, before) = (new.get("spec"), new.get("status"), old.get("status"));
    let (done, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let done_changed = done.text() != before.get("completedIndexes").text();
    let failed_changed = failed.value != before.get("failedIndexes").value;
    let completions = spec.get("completions");
    let indexed = spec.get("completionMode").text() == "Indexed";
    if done_changed
        && completions.exists()
        && let Err(why) = job_policy::indexes(done.text(), completions.int())
    {
        done.invalid_text(e, format!("error parsing completedIndexes: {why}"));
    }
    if failed_changed
        && completions.exists()
        && spec.get("backoffLimitPerIndex").exists()
        && failed.exists()
        && let Err(why) = job_policy::indexes(failed.text(), completions.int())
    {
        failed.invalid_text(e, format!("error parsing failedIndexes: {why}"));
    }
    if done_changed && !done.is_empty() && !indexed {
        done.invalid_text(e, "cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed_changed && failed.exists() && !spec.get("backoffLimitPerIndex").exists() {
        failed.invalid_text(e, "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if (done_changed || failed_changed)
        && completions.exists()
        && failed.exists()
        && let Some(index) = overlap(done.text(), failed.text(), completions.int())
    {
        failed.invalid_text(e, format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

fn overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let parts = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| job_policy::interval(part, completions).ok()).collect()
    };
    let failed = parts(failed);
    let pairs = parts(done).into_iter().flat_map(|a| failed.iter().map(move |b| (a, *b)));
    pairs.filter(|(a, b)| a.0 <= b.1 && b.0 <= a.1).map(|(a, b)| a.0.max(b.0)).min()
}

fn success(new: &At, e: &mut Errors) {
    let (status, met) = (new.get("status"), is(new, "SuccessCriteriaMet"));
    let list = status.get("conditions");
    if met && is(new, "Failed") {
        list.invalid_as(e, Bad::Omitted, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if met && is(new, "FailureTarget") {
        list.invalid_as(e, Bad::Omitted, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if new.get("spec").get("successPolicy").exists() && !met && is(new, "Complete") {
        let message = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        list.invalid_as(e, Bad::Omitted, message);
    }
}

fn decreases(new: &At, old: &At, e: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let list = status.get("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is(old, kind) && !is(new, kind) {
            list.invalid_as(e, Bad::Omitted, format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    for field in ["failed", "succeeded"] {
        if status.get(field).int() < before.get(field).int() {
            status.get(field).invalid_int(e, format!("cannot decrease the {field} counter"));
        }
    }
    let (end, was_end) = (status.get("completionTime"), before.get("completionTime"));
    if end.exists() && was_end.exists() && end.value != was_end.value {
        end.invalid(e, super::at::IMMUTABLE);
    }
    let (start, was_start) = (status.get("startTime"), before.get("startTime"));
    if was_start.exists() && start.value != was_start.value && !new.get("spec").get("suspend").is_true() {
        start.invalid(e, "field is immutable for unsuspended job once set");
    }
    if is(old, "SuccessCriteriaMet") && !is(new, "SuccessCriteriaMet") {
        list.invalid_as(e, Bad::Omitted, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is(old, "Complete") && !is(old, "SuccessCriteriaMet") && is(new, "SuccessCriteriaMet") {
        let message = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        list.invalid_as(e, Bad::Omitted, message);
    }
}
