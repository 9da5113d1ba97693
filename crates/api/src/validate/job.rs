//! Jobs, as far as the tables cannot say what is right.

use super::{prelude::*, selector};

pub(super) const FUNCTIONS: Functions = functions! { generated_selector job_selector indexed_name job_change };

const LABEL_SELECTOR: &str = "meta/v1.LabelSelector";

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
        selector.invalid_struct(e, LABEL_SELECTOR, "`selector` not auto-generated");
    }
}

/// The selector selects the pods of the template.
fn job_selector(spec: &At, e: &mut Errors) {
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

/// What a job does stays as it is.
fn job_change(new: &At, e: &mut Errors) {
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
