//! Validation of the annotations that mean something to pods, old forms of fields among them.

use super::{MIRROR, containers, visit};
use crate::validate::prelude::*;

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The specification of the pod or template that has these annotations.
fn with_spec(at: &At, then: impl FnOnce(&At)) {
    then(&at.up(2).get("spec"));
}

/// The faults of annotations of a pod or template.
pub fn pod_annotations(at: &At, e: &mut Errors) {
    if at.exists() {
        with_spec(at, |spec| check(at, spec, e));
    }
}

fn check(at: &At, spec: &At, e: &mut Errors) {
    let mirror = at.key(MIRROR);
    if mirror.exists() && spec.get("nodeName").is_empty() {
        mirror.invalid_text(e, "must set spec.nodeName if mirror pod annotation is set");
    }
    let old_tolerations = at.key(TOLERATIONS).text();
    if !old_tolerations.is_empty() {
        match serde_json::from_str::<Value>(old_tolerations) {
            Ok(list) => At::top(&list).items().for_each(|one| rules::check("Toleration", &one, e)),
            Err(error) => at.invalid_as(e, TOLERATIONS, error.to_string()),
        }
    }
    let cost = at.key(DELETION_COST);
    if cost.exists() && !is_cost(cost.text()) {
        cost.invalid_text(e, "must be a 32bit integer");
    }
    for (key, value) in at.entries() {
        if key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(&at.called(key, value.value), e);
        }
    }
    for (key, value) in at.entries() {
        if let Some(name) = key.strip_prefix(APP_ARMOR) {
            app_armor(name, &value, spec, e);
        }
    }
}

fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let padded = text.starts_with('+') || digits.starts_with('0') && text != "0";
    !padded && text.parse::<i32>().is_ok()
}

fn seccomp(at: &At, e: &mut Errors) {
    match at.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(file) => at.form_as(e, file, names::relative),
            None => at.invalid_text(e, "must be a valid seccomp profile"),
        },
    }
}

fn app_armor(container: &str, at: &At, spec: &At, e: &mut Errors) {
    let exists = containers(spec).any(|(_, _, c)| c.get("name").and_then(Value::as_str) == Some(container));
    if !exists {
        at.invalid_as(e, container, "container not found");
    }
    let profile = at.text();
    if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
        at.invalid_text(e, format!("invalid AppArmor profile name: {profile:?}"));
    }
}

/// What an annotation says in the old way and a field in the new one is the same.
pub fn annotations_match_fields(at: &At, e: &mut Errors) {
    let is_old = |key: &str| key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) || key.starts_with(APP_ARMOR);
    if at.entries().any(|(key, _)| is_old(key)) {
        with_spec(at, |spec| match_fields(at, spec, e));
    }
}

fn match_fields(at: &At, spec: &At, e: &mut Errors) {
    let pod = spec.get("securityContext");
    agree(at.get(SECCOMP).value, &pod.get("seccompProfile"), "seccomp", e);
    visit(spec, |container| {
        let key = format!("{SECCOMP_CONTAINER}{}", container.get("name").text());
        let context = container.get("securityContext");
        agree(at.get(&key).value, &context.get("seccompProfile"), "seccomp", e);
    });
    if spec.get("os").get("name").text() == "windows" {
        return;
    }
    visit(spec, |container| {
        let key = format!("{APP_ARMOR}{}", container.get("name").text());
        let context = container.get("securityContext");
        let own = context.get("appArmorProfile");
        let value = if own.exists() { own.value } else { pod.get("appArmorProfile").value };
        agree(at.get(&key).value, &context.called("appArmorProfile", value), "apparmor", e);
    });
}

fn agree(annotation: &Value, field: &At, what: &str, e: &mut Errors) {
    let Some(annotation) = annotation.as_str().filter(|_| field.exists()) else { return };
    let right = match field.get("type").text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || what == "seccomp" && annotation == "docker/default",
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) => {
                if file != field.get("localhostProfile").text() {
                    let message = format!("{what} profile in annotation and field must match");
                    field.get("localhostProfile").forbidden(e, message);
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !right {
        field.get("type").forbidden(e, format!("{what} type in annotation and field must match"));
    }
}
