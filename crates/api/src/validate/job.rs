//! Validation of Jobs beyond the rule tables: selectors, failure and success policies, index lists such as `0-3,7`, and
//! status.

use super::{prelude::*, selector};

const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// Requires the generated selector and labels, unless the selector is manual.
pub fn validate_generated_selector(job: &FieldCursor, e: &mut ErrorList) {
    let (spec, meta) = (job.get("spec"), job.get("metadata"));
    let selector = spec.get("selector");
    if spec.get("manualSelector").is_true() || !selector.exists() {
        return;
    }
    meta.get("uid").require_value(e);
    let template = spec.get("template");
    let inner = template.get("metadata");
    let labels = inner.get("labels");
    let (uid, name) = (meta.get("uid").text(), meta.get("name").text());
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let label = labels.entry(key);
        if !label.exists() {
            label.required(e, format!("must be '{value}'"));
        } else if label.text() != value {
            label.invalid_as(e, labels.value.clone(), format!("must be '{value}'"));
        }
    }
    let made: crate::Map = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    if let Ok(Some(parsed)) = selector::parse_selector(selector.value)
        && !parsed.matches(&Value::Object(made))
    {
        selector.invalid_struct(e, LABEL_SELECTOR, "`selector` not auto-generated");
    }
}

/// Requires the selector to match the template's labels.
pub fn validate_job_selector(spec: &FieldCursor, e: &mut ErrorList) {
    if let Ok(parsed) = selector::parse_selector(spec.get("selector").value) {
        let template = spec.get("template");
        let meta = template.get("metadata");
        let labels = meta.get("labels");
        if !parsed.is_some_and(|parsed| parsed.matches(labels.value)) {
            labels.invalid(e, "`selector` does not match template `labels`");
        }
    }
}

/// Requires valid pod names for an indexed job.
pub fn validate_indexed_name(job: &FieldCursor, e: &mut ErrorList) {
    let spec = job.get("spec");
    let completions = spec.get("completions").int();
    if spec.get("completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let meta = job.get("metadata");
    let name = meta.get("name");
    let last = format!("{}-{}", name.text(), completions - 1);
    if !names::check_dns_label(&last).is_empty() {
        name.invalid_text(e, format!("will not able to create pod with invalid DNS label: {last}"));
    }
}

/// Validates a spec update.
pub fn validate_job_change(new: &FieldCursor, e: &mut ErrorList) {
    let spec = new.get("spec");
    let (completions, was) = (spec.get("completions"), spec.old_cursor());
    let was = was.get("completions");
    if spec.text_at("completionMode") == "Indexed"
        && completions.value != was.value
        && completions.exists()
        && completions.int() != spec.get("parallelism").int()
    {
        completions.invalid(e, "can only be modified in tandem with spec.parallelism");
    }
    check_block("FixedJobSelector", &spec, e);
    validate_template_update(&spec, &new.old_cursor(), e);
    check_block("FixedJobSpec", &spec, e);
}

/// Validates a template update: scheduling fields and resources may change while a job is suspended without pods.
fn validate_template_update(spec: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
    let (before, status) = (old.get("spec"), old.get("status"));
    let suspended = before.get("suspend").is_true();
    let conditions = status.get("conditions");
    let marked = conditions
        .items()
        .any(|condition| condition.get("type").text() == "Suspended" && condition.get("status").text() == "True");
    let free = suspended && (!status.get("startTime").exists() || marked) && status.get("active").int() == 0;
    let (template, mut was) = (spec.get("template"), before.get("template").value.clone());
    if free {
        copy_scheduling_fields(template.value, &mut was);
        copy_resources(template.value, &mut was);
        let inner = template.get("spec");
        if !semantically_equal(inner.value, was.get("spec").unwrap_or(&Value::Null)) {
            spec.get("template.spec").invalid_as(e, render_bad_value("core/v1.PodSpec", inner.value), IMMUTABLE);
        }
    } else if !semantically_equal(template.value, &was) {
        template.invalid_struct(e, "core/v1.PodTemplateSpec", IMMUTABLE);
    }
}

fn copy_scheduling_fields(new: &Value, old: &mut Value) {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if let Some(inner) = old.get_mut("spec") {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            set_or_remove(inner, field, spec.get(field).unwrap_or(&Value::Null));
        }
        let mut affinity = inner.get("affinity").cloned().unwrap_or_else(|| serde_json::json!({}));
        set_or_remove(&mut affinity, "nodeAffinity", &spec["affinity"]["nodeAffinity"]);
        let empty = affinity.as_object().is_none_or(crate::Map::is_empty) && spec.get("affinity").is_none();
        set_or_remove(inner, "affinity", if empty { &Value::Null } else { &affinity });
    }
    set_or_remove(old, "metadata", &new["metadata"]);
}

fn copy_resources(new: &Value, old: &mut Value) {
    for list in ["containers", "initContainers"] {
        let now = new["spec"][list].as_array().cloned().unwrap_or_default();
        let Some(was) = old.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut) else { continue };
        if now.len() != was.len() {
            continue;
        }
        for (now, was) in now.iter().zip(was).filter(|(now, was)| now["name"] == was["name"]) {
            if let Some(map) = was.as_object_mut() {
                map.insert("resources".to_owned(), now["resources"].clone());
            }
        }
    }
}

/// Validates a domain-prefixed path: `acme.io/foo`.
pub fn validate_domain_path(at: &FieldCursor, e: &mut ErrorList) {
    if !at.require_value(e) {
        return;
    }
    match at.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => at.invalid_text(e, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((host, path)) => {
            at.check_format_as(e, host, names::check_dns_subdomain);
            if !path.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)) {
                let message = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                at.invalid_as(e, path, message);
            }
        }
    }
}

/// Requires a container name of the template.
pub fn validate_container_of_template(name: &FieldCursor, e: &mut ErrorList) {
    let template = name.ancestor(5).get("template");
    let inner = template.get("spec");
    let known =
        ["containers", "initContainers"].iter().any(|list| inner.get(list).find_by("name", name.text()).is_some());
    if !known {
        name.invalid_text(e, "must be one of the container or initContainer names in the pod template");
    }
}

/// Requires exit codes to be sorted and unique.
pub fn validate_exit_codes(values: &FieldCursor, e: &mut ErrorList) {
    let (mut seen, mut ordered) = (Vec::new(), true);
    for value in values.items() {
        let code = value.int();
        if values.ancestor(1).text_at("operator") == "In" && code == 0 {
            value.invalid(e, "must not be 0 for the In operator");
        }
        if seen.contains(&code) {
            value.duplicate(e, code);
        }
        ordered &= seen.last().is_none_or(|last| *last <= code);
        seen.push(code);
    }
    if !ordered {
        values.invalid(e, "must be ordered");
    }
}

/// Validates the counts of a success policy.
pub fn validate_success_counts(rule: &FieldCursor, e: &mut ErrorList) {
    let completions = rule.ancestor(3).get("completions").int();
    let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    let total = self::count_indexes(indexes.text(), completions);
    if let Err(why) = &total {
        indexes.invalid_text(e, format!("error parsing succeededIndexes: {why}"));
    }
    count.require_nonnegative(e);
    if count.exists() && count.int() > completions {
        let message = format!("must be less than or equal to {completions} (the number of specified completions)");
        count.invalid(e, message);
    }
    let total = total.unwrap_or(0);
    if count.exists() && indexes.exists() && count.int() > total {
        let what = "the number of indexes in the specified succeededIndexes field";
        count.invalid(e, format!("must be less than or equal to {total} ({what})"));
    }
}

/// Counts the indexes of a list.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut total) = (None, 0);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = parse_interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

/// Parses the first and last index of an interval.
fn parse_interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        let rule = "violates the requirement that an index interval can have at most two parts separated by '-'";
        return Err(format!("the fragment {text:?} {rule}"));
    }
    let number = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(number) if number >= completions => Err(format!("too large index: {text:?}")),
        Ok(number) => Ok(number),
    };
    let from = number(parts[0])?;
    let to = parts.get(1).map_or(Ok(from), |text| number(text))?;
    if parts.len() == 2 && from >= to {
        return Err(format!("non-increasing order, previous: {from}, current: {to}"));
    }
    Ok((from, to))
}

/// Validates uncounted terminated pods: each UID once.
pub fn validate_uncounted(lists: &FieldCursor, e: &mut ErrorList) {
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

pub fn validate_nothing_uncounted(lists: &FieldCursor, e: &mut ErrorList) {
    if ["succeeded", "failed"].iter().any(|list| !lists.get(list).is_empty()) {
        lists.invalid_struct(e, "batch/v1.UncountedTerminatedPods", "must be empty for finished job");
    }
}

pub fn validate_ends_after_start(status: &FieldCursor, e: &mut ErrorList) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    if start.exists() && end.exists() && end.text() < start.text() && (start.is_changed() || end.is_changed()) {
        end.invalid(e, "must be equal to or after `startTime`");
    }
}

/// Validates completed and failed indexes of the status.
pub fn validate_done_indexes(new: &FieldCursor, e: &mut ErrorList) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let (done, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let done_changed = done.text() != done.old_cursor().text();
    let failed_changed = failed.value != failed.old;
    let completions = spec.get("completions");
    let indexed = spec.get("completionMode").text() == "Indexed";
    if done_changed
        && completions.exists()
        && let Err(why) = count_indexes(done.text(), completions.int())
    {
        done.invalid_text(e, format!("error parsing completedIndexes: {why}"));
    }
    if failed_changed
        && completions.exists()
        && spec.get("backoffLimitPerIndex").exists()
        && failed.exists()
        && let Err(why) = count_indexes(failed.text(), completions.int())
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
        && let Some(index) = first_overlap(done.text(), failed.text(), completions.int())
    {
        failed.invalid_text(e, format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

fn first_overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let parts = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| parse_interval(part, completions).ok()).collect()
    };
    let failed = parts(failed);
    let pairs = parts(done).into_iter().flat_map(|a| failed.iter().map(move |b| (a, *b)));
    pairs.filter(|(a, b)| a.0 <= b.1 && b.0 <= a.1).map(|(a, b)| a.0.max(b.0)).min()
}
