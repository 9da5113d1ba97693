//! The status of jobs, as far as the tables cannot say what is right.

use super::{job_policy, prelude::*};

pub(super) const FUNCTIONS: Functions =
    functions! { uncounted nothing_uncounted ends_after_start done_indexes only_counts_up };

/// A pod ends in one way.
fn uncounted(lists: &At, e: &mut Errors) {
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

fn nothing_uncounted(lists: &At, e: &mut Errors) {
    if ["succeeded", "failed"].iter().any(|list| !lists.get(list).is_empty()) {
        lists.invalid_struct(e, "batch/v1.UncountedTerminatedPods", "must be empty for finished job");
    }
}

fn ends_after_start(status: &At, e: &mut Errors) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    if start.exists() && end.exists() && end.text() < start.text() && (start.differs() || end.differs()) {
        end.invalid(e, "must be equal to or after `startTime`");
    }
}

/// Indexes that are done, and those that failed, are lists of their own.
fn done_indexes(new: &At, e: &mut Errors) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let (done, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let done_changed = done.text() != done.before().text();
    let failed_changed = failed.value != failed.old;
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

fn only_counts_up(count: &At, e: &mut Errors) {
    if count.int() < count.before().int() {
        count.invalid_int(e, format!("cannot decrease the {} counter", count.name()));
    }
}
