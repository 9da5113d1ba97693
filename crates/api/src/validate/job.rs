//! Jobs, when they fail and succeed, lists of indexes such as `0-3,7`, and their status, as far as the tables cannot say what is right.

use super::{prelude::*, selector};

const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// Unless it is the client's, the selector is made from the job's own name and number.
pub fn generated_selector(job: &At, e: &mut Errors) {
    let (spec, meta) = (job.get("spec"), job.get("metadata"));
    let selector = spec.get("selector");
    if spec.get("manualSelector").is_true() || !selector.exists() {
        return;
    }
    meta.get("uid").require(e);
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
        let label = labels.key(key);
        if !label.exists() {
            label.required(e, format!("must be '{value}'"));
        } else if label.text() != value {
            label.invalid_as(e, labels.value.clone(), format!("must be '{value}'"));
        }
    }
    let made: crate::Map = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    if let Ok(Some(parsed)) = selector::parsed(selector.value)
        && !parsed.matches(&Value::Object(made))
    {
        selector.invalid_struct(e, LABEL_SELECTOR, "`selector` not auto-generated");
    }
}

/// The selector selects the pods of the template.
pub fn job_selector(spec: &At, e: &mut Errors) {
    if let Ok(parsed) = selector::parsed(spec.get("selector").value) {
        let template = spec.get("template");
        let meta = template.get("metadata");
        let labels = meta.get("labels");
        if !parsed.is_some_and(|parsed| parsed.matches(labels.value)) {
            labels.invalid(e, "`selector` does not match template `labels`");
        }
    }
}

/// The pods of an indexed job are named after it and their index.
pub fn indexed_name(job: &At, e: &mut Errors) {
    let spec = job.get("spec");
    let completions = spec.get("completions").int();
    if spec.get("completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let meta = job.get("metadata");
    let name = meta.get("name");
    let last = format!("{}-{}", name.text(), completions - 1);
    if !names::label(&last).is_empty() {
        name.invalid_text(e, format!("will not able to create pod with invalid DNS label: {last}"));
    }
}

/// What a job does stays as it is.
pub fn job_change(new: &At, e: &mut Errors) {
    let spec = new.get("spec");
    let (completions, was) = (spec.get("completions"), spec.before());
    let was = was.get("completions");
    if spec.text_of("completionMode") == "Indexed"
        && completions.value != was.value
        && completions.exists()
        && completions.int() != spec.get("parallelism").int()
    {
        completions.invalid(e, "can only be modified in tandem with spec.parallelism");
    }
    rules::check("FixedJobSelector", &spec, e);
    template_change(&spec, &new.before(), e);
    rules::check("FixedJobSpec", &spec, e);
}

/// While a job is suspended and has no pods, where its pods go and what they ask for may change.
fn template_change(spec: &At, old: &At, e: &mut Errors) {
    let (before, status) = (old.get("spec"), old.get("status"));
    let suspended = before.get("suspend").is_true();
    let conditions = status.get("conditions");
    let marked = conditions
        .items()
        .any(|condition| condition.get("type").text() == "Suspended" && condition.get("status").text() == "True");
    let free = suspended && (!status.get("startTime").exists() || marked) && status.get("active").int() == 0;
    let (template, mut was) = (spec.get("template"), before.get("template").value.clone());
    if free {
        take_scheduling(template.value, &mut was);
        take_resources(template.value, &mut was);
        let inner = template.get("spec");
        if !same(inner.value, was.get("spec").unwrap_or(&Value::Null)) {
            spec.get("template.spec").invalid_as(e, Bad::of("core/v1.PodSpec", inner.value), IMMUTABLE);
        }
    } else if !same(template.value, &was) {
        template.invalid_struct(e, "core/v1.PodTemplateSpec", IMMUTABLE);
    }
}

fn take_scheduling(new: &Value, old: &mut Value) {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if let Some(inner) = old.get_mut("spec") {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            put(inner, field, spec.get(field).unwrap_or(&Value::Null));
        }
        let mut affinity = inner.get("affinity").cloned().unwrap_or_else(|| serde_json::json!({}));
        put(&mut affinity, "nodeAffinity", &spec["affinity"]["nodeAffinity"]);
        let empty = affinity.as_object().is_none_or(crate::Map::is_empty) && spec.get("affinity").is_none();
        put(inner, "affinity", if empty { &Value::Null } else { &affinity });
    }
    put(old, "metadata", &new["metadata"]);
}

fn take_resources(new: &Value, old: &mut Value) {
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

/// A path after a domain: `acme.io/foo`.
pub fn domain_path(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    match at.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => at.invalid_text(e, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((host, path)) => {
            at.form_as(e, host, names::subdomain);
            if !path.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)) {
                let message = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                at.invalid_as(e, path, message);
            }
        }
    }
}

/// A rule about exit codes names a container that there is.
pub fn container_of_template(name: &At, e: &mut Errors) {
    let template = name.up(5).get("template");
    let inner = template.get("spec");
    let known = ["containers", "initContainers"].iter().any(|list| inner.get(list).find("name", name.text()).is_some());
    if !known {
        name.invalid_text(e, "must be one of the container or initContainer names in the pod template");
    }
}

/// Exit codes stand in order, each once.
pub fn exit_codes(values: &At, e: &mut Errors) {
    let (mut seen, mut ordered) = (Vec::new(), true);
    for value in values.items() {
        let code = value.int();
        if values.up(1).text_of("operator") == "In" && code == 0 {
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

/// What must succeed is at most what there is.
pub fn success_counts(rule: &At, e: &mut Errors) {
    let completions = rule.up(3).get("completions").int();
    let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    let total = self::count_indexes(indexes.text(), completions);
    if let Err(why) = &total {
        indexes.invalid_text(e, format!("error parsing succeededIndexes: {why}"));
    }
    count.nonnegative(e);
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

/// How many indexes a list has.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut total) = (None, 0);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

/// The first and last index of a part.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
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

/// A pod ends in one way.
pub fn uncounted(lists: &At, e: &mut Errors) {
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

pub fn nothing_uncounted(lists: &At, e: &mut Errors) {
    if ["succeeded", "failed"].iter().any(|list| !lists.get(list).is_empty()) {
        lists.invalid_struct(e, "batch/v1.UncountedTerminatedPods", "must be empty for finished job");
    }
}

pub fn ends_after_start(status: &At, e: &mut Errors) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    if start.exists() && end.exists() && end.text() < start.text() && (start.differs() || end.differs()) {
        end.invalid(e, "must be equal to or after `startTime`");
    }
}

/// Indexes that are done, and those that failed, are lists of their own.
pub fn done_indexes(new: &At, e: &mut Errors) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let (done, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let done_changed = done.text() != done.before().text();
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
        && let Some(index) = overlap(done.text(), failed.text(), completions.int())
    {
        failed.invalid_text(e, format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

fn overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let parts = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let failed = parts(failed);
    let pairs = parts(done).into_iter().flat_map(|a| failed.iter().map(move |b| (a, *b)));
    pairs.filter(|(a, b)| a.0 <= b.1 && b.0 <= a.1).map(|(a, b)| a.0.max(b.0)).min()
}
