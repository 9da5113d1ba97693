//! Validation of jobs and cron jobs.

use super::{
    Errors,
    at::At,
    cron,
    error::{Bad, Fault},
    job_policy as policy, names, pod,
    render::{self, same},
    selector,
};
use crate::Value;

const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

/// The faults of a job.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    match old {
        None => {
            generated_selector(new, e);
            whole_spec(&spec, None, e);
            indexed_name(new, e);
        }
        Some(old) => {
            whole_spec(&spec, Some(old), e);
            changed(&spec, old, e);
        }
    }
}

/// Unless it is the client's, the selector is made from the job's own name and number.
fn generated_selector(job: &At, e: &mut Errors) {
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
        selector.invalid_external(e, LABEL_SELECTOR, "`selector` not auto-generated");
    }
}

fn whole_spec(spec: &At, old: Option<&At>, e: &mut Errors) {
    self::spec(spec, old.map(|old| old.get("spec").value), e);
    let at = spec.get("selector");
    if at.exists() {
        selector::selector(&at, e);
    } else {
        at.required(e, "");
    }
    if let Ok(parsed) = selector::parsed(at.value) {
        let template = spec.get("template");
        let meta = template.get("metadata");
        let labels = meta.get("labels");
        if !parsed.is_some_and(|parsed| parsed.matches(labels.value)) {
            labels.invalid(e, "`selector` does not match template `labels`");
        }
    }
}

/// The pods of an indexed job are named after it and their index.
fn indexed_name(job: &At, e: &mut Errors) {
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

/// The faults of the specification of a job, its selector aside.
fn spec(at: &At, old: Option<&Value>, e: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        at.get(field).nonnegative(e);
    }
    if at.get("maxFailedIndexes").exists() && !at.get("backoffLimitPerIndex").exists() {
        at.get("backoffLimitPerIndex").required(e, "when maxFailedIndexes is specified");
    }
    let manager = at.get("managedBy");
    if manager.exists() {
        policy::domain_path(&manager, e);
        if manager.text().len() > 63 {
            manager.too_long(e, 63);
        }
    }
    completion_mode(at, e);
    policy::failure(at, e);
    if at.get("successPolicy").exists() {
        if at.get("completionMode").text() == "Indexed" {
            policy::success(at, e);
        } else {
            at.get("successPolicy").invalid_internal(e, "batch/v1.SuccessPolicy", "requires indexed completion mode");
        }
    }
    let replacement = at.get("podReplacementPolicy");
    if at.get("podFailurePolicy").exists() {
        replacement.one_of(e, &["Failed"]);
    } else {
        replacement.one_of(e, &["Failed", "TerminatingOrFailed"]);
    }
    let template = at.get("template");
    pod::template(&template, old.and_then(|old| old.get("template")), e);
    restart_policy(at, e);
}

fn restart_policy(spec: &At, e: &mut Errors) {
    let template = spec.get("template");
    let inner = template.get("spec");
    let restart = inner.get("restartPolicy");
    match restart.text() {
        "Always" | "" => restart.required(e, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.get("podFailurePolicy").exists() => {
            restart.invalid_text(e, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => restart.unsupported(e, &["OnFailure", "Never"]),
    }
}

fn completion_mode(at: &At, e: &mut Errors) {
    const MANY: i64 = 100_000;
    const FEW: i64 = 10_000;
    let (mode, completions, parallelism) = (at.get("completionMode"), at.get("completions"), at.get("parallelism"));
    let (failures, per_index) = (at.get("maxFailedIndexes"), at.get("backoffLimitPerIndex"));
    mode.one_of(e, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        if !completions.exists() {
            completions.required(e, "when completion mode is Indexed");
        }
        if parallelism.int() > MANY {
            parallelism.invalid(e, format!("must be less than or equal to {MANY} when completion mode is Indexed"));
        }
        if completions.exists() && failures.exists() && failures.int() > completions.int() {
            failures.invalid(e, "must be less than or equal to completions");
        }
        if failures.int() > MANY {
            failures.invalid(e, format!("must be less than or equal to {MANY}"));
        }
        if completions.int() > MANY && per_index.exists() {
            let message = format!(
                "must be less than or equal to {FEW} when completions are above {MANY} and used with backoff limit per index"
            );
            if !failures.exists() {
                failures.required(e, format!("must be specified when completions is above {MANY}"));
            }
            for field in [&parallelism, &failures].into_iter().filter(|field| field.int() > FEW) {
                field.invalid(e, message.clone());
            }
        }
    }
    if !mode.exists() || mode.text() == "NonIndexed" {
        for field in [&per_index, &failures].into_iter().filter(|field| field.exists()) {
            field.invalid(e, "requires indexed completion mode");
        }
    }
}

fn changed(spec: &At, old: &At, e: &mut Errors) {
    let before = old.get("spec");
    let (completions, was) = (spec.get("completions"), before.get("completions"));
    if spec.get("completionMode").text() != "Indexed" {
        completions.unchanged(e, &was);
    } else if completions.value != was.value
        && completions.exists()
        && completions.int() != spec.get("parallelism").int()
    {
        completions.invalid(e, "can only be modified in tandem with spec.parallelism");
    }
    let selector = spec.get("selector");
    if !same(selector.value, before.get("selector").value) {
        selector.invalid_external(e, LABEL_SELECTOR, super::at::IMMUTABLE);
    }
    template_change(spec, old, e);
    spec.get("completionMode").unchanged(e, &before.get("completionMode"));
    spec.get("podFailurePolicy").unchanged_internal(e, &before.get("podFailurePolicy"), "batch/v1.PodFailurePolicy");
    spec.get("backoffLimitPerIndex").unchanged(e, &before.get("backoffLimitPerIndex"));
    spec.get("managedBy").unchanged(e, &before.get("managedBy"));
    spec.get("successPolicy").unchanged_internal(e, &before.get("successPolicy"), "batch/v1.SuccessPolicy");
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
            let shown = Bad::Shown(render::internal("core/v1.PodSpec", inner.value));
            spec.get("template.spec").fault(e, Fault::Invalid(shown), super::at::IMMUTABLE);
        }
    } else if !same(template.value, &was) {
        let shown = Bad::Shown(render::internal("core/v1.PodTemplateSpec", template.value));
        template.fault(e, Fault::Invalid(shown), super::at::IMMUTABLE);
    }
}

fn take_scheduling(new: &Value, old: &mut Value) {
    let put = |object: &mut Value, field: &str, value: Option<&Value>| {
        let Some(map) = object.as_object_mut() else { return };
        match value {
            Some(value) => drop(map.insert(field.to_owned(), value.clone())),
            None => drop(map.remove(field)),
        }
    };
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if let Some(inner) = old.get_mut("spec") {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            put(inner, field, spec.get(field));
        }
        let mut affinity = inner.get("affinity").cloned().unwrap_or_else(|| serde_json::json!({}));
        put(&mut affinity, "nodeAffinity", spec.get("affinity").and_then(|affinity| affinity.get("nodeAffinity")));
        let empty = affinity.as_object().is_none_or(crate::Map::is_empty) && spec.get("affinity").is_none();
        put(inner, "affinity", (!empty).then_some(&affinity));
    }
    put(old, "metadata", new.get("metadata"));
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

/// The faults of a cron job.
pub(super) fn cron_job(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    let schedule = spec.get("schedule");
    let zone = spec.get("timeZone");
    if schedule.require(e) {
        if let Err(why) = cron::check(schedule.text()) {
            schedule.invalid_text(e, why);
        }
        let had_zone = old.is_some_and(|old| old.get("spec").get("schedule").text().contains("TZ"));
        if schedule.text().contains("TZ") {
            if had_zone && zone.exists() {
                schedule.invalid_text(e, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
            } else if !had_zone {
                schedule.invalid_text(e, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
            }
        }
    }
    spec.get("startingDeadlineSeconds").nonnegative(e);
    if old.is_none_or(|old| old.get("spec").get("timeZone").value != zone.value) && zone.exists() {
        time_zone(&zone, e);
    }
    spec.get("concurrencyPolicy").required_one_of(e, &["Allow", "Forbid", "Replace"]);
    let template = spec.get("jobTemplate");
    let inner = template.get("spec");
    let before = old.map(|old| old.get("spec").get("jobTemplate").get("spec").value);
    self::spec(&inner, before, e);
    if inner.get("selector").exists() {
        inner.get("selector").invalid_external(e, LABEL_SELECTOR, "`selector` will be auto-generated");
    }
    if inner.get("manualSelector").is_true() {
        e.push(super::FieldError::not_supported(inner.get("manualSelector").to_string(), true, &["nil", "false"]));
    }
    spec.get("successfulJobsHistoryLimit").nonnegative(e);
    spec.get("failedJobsHistoryLimit").nonnegative(e);
    let meta = new.get("metadata");
    if old.is_none() && meta.get("name").text().len() > 52 {
        meta.get("name").invalid_text(e, "must be no more than 52 characters");
    }
}

fn time_zone(at: &At, e: &mut Errors) {
    if at.is_empty() {
        return at.invalid_text(e, "timeZone must be nil or non-empty string");
    }
    let part = |part: &str| {
        (1..=14).contains(&part.len())
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || ".-_+".contains(c))
    };
    if !at.text().split('/').all(part) {
        return at.invalid_text(e, format!("unknown time zone {}", at.text()));
    }
    if !is_known_zone(at.text()) {
        at.invalid_text(e, format!("unknown time zone {}", at.text()));
    }
    if at.text().eq_ignore_ascii_case("local") {
        let message = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        at.invalid_text(e, message);
    }
}

/// Areas of the time zone database, and its zones without an area. Which places an area has is not looked at.
fn is_known_zone(name: &str) -> bool {
    const AREAS: &str = "Africa America Antarctica Arctic Asia Atlantic Australia Brazil Canada Chile Etc Europe Indian Mexico \
        Pacific US";
    const ZONES: &str = "CET CST6CDT Cuba EET EST EST5EDT Egypt Eire Factory GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST Hongkong \
        Iceland Iran Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT NZ NZ-CHAT Navajo PRC PST8PDT Poland Portugal ROC ROK \
        Singapore Turkey UCT UTC Universal W-SU WET Zulu Local";
    let listed = |list: &str, name: &str| list.split_whitespace().any(|known| known == name);
    match name.split_once('/') {
        Some((area, place)) => listed(AREAS, area) && !place.is_empty(),
        None => listed(ZONES, name),
    }
}
