//! Validation of pod annotations, including legacy forms of fields.

use super::{MIRROR_ANNOTATION, all_containers, visit_containers};
use crate::validate::prelude::*;

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Calls `then` with the spec beside the annotations.
fn with_pod_spec(at: &FieldCursor, then: impl FnOnce(&FieldCursor)) {
    then(&at.ancestor(2).get("spec"));
}

/// Validates the annotations of a pod or template.
pub fn validate_pod_annotations(at: &FieldCursor, e: &mut ErrorList) {
    if at.exists() {
        with_pod_spec(at, |spec| check_annotations(at, spec, e));
    }
}

fn check_annotations(at: &FieldCursor, spec: &FieldCursor, e: &mut ErrorList) {
    let mirror = at.entry(MIRROR_ANNOTATION);
    if mirror.exists() && spec.get("nodeName").is_empty() {
        mirror.invalid_text(e, "must set spec.nodeName if mirror pod annotation is set");
    }
    let old_tolerations = at.entry(TOLERATIONS).text();
    if !old_tolerations.is_empty() {
        match serde_json::from_str::<Value>(old_tolerations) {
            Ok(list) => FieldCursor::for_create(&list).items().for_each(|one| check_block("Toleration", &one, e)),
            Err(error) => at.invalid_as(e, TOLERATIONS, error.to_string()),
        }
    }
    let cost = at.entry(DELETION_COST);
    if cost.exists() && !is_deletion_cost(cost.text()) {
        cost.invalid_text(e, "must be a 32bit integer");
    }
    for (key, value) in at.entries() {
        if key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) {
            check_seccomp(&at.child_as(key, value.value), e);
        }
    }
    for (key, value) in at.entries() {
        if let Some(name) = key.strip_prefix(APP_ARMOR) {
            check_app_armor(name, &value, spec, e);
        }
    }
}

fn is_deletion_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let padded = text.starts_with('+') || digits.starts_with('0') && text != "0";
    !padded && text.parse::<i32>().is_ok()
}

fn check_seccomp(at: &FieldCursor, e: &mut ErrorList) {
    match at.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(file) => at.check_format_as(e, file, names::check_relative_path),
            None => at.invalid_text(e, "must be a valid seccomp profile"),
        },
    }
}

fn check_app_armor(container: &str, at: &FieldCursor, spec: &FieldCursor, e: &mut ErrorList) {
    let exists = all_containers(spec).any(|(_, _, c)| c.get("name").and_then(Value::as_str) == Some(container));
    if !exists {
        at.invalid_as(e, container, "container not found");
    }
    let profile = at.text();
    if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
        at.invalid_text(e, format!("invalid AppArmor profile name: {profile:?}"));
    }
}

/// Requires legacy annotations to agree with their fields.
pub fn validate_annotations_match_fields(at: &FieldCursor, e: &mut ErrorList) {
    let is_old = |key: &str| key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) || key.starts_with(APP_ARMOR);
    if at.entries().any(|(key, _)| is_old(key)) {
        with_pod_spec(at, |spec| check_field_agreement(at, spec, e));
    }
}

fn check_field_agreement(at: &FieldCursor, spec: &FieldCursor, e: &mut ErrorList) {
    let pod = spec.get("securityContext");
    check_profile_agreement(at.get(SECCOMP).value, &pod.get("seccompProfile"), "seccomp", e);
    visit_containers(spec, |container| {
        let key = format!("{SECCOMP_CONTAINER}{}", container.get("name").text());
        let context = container.get("securityContext");
        check_profile_agreement(at.get(&key).value, &context.get("seccompProfile"), "seccomp", e);
    });
    if spec.get("os").get("name").text() == "windows" {
        return;
    }
    visit_containers(spec, |container| {
        let key = format!("{APP_ARMOR}{}", container.get("name").text());
        let context = container.get("securityContext");
        let own = context.get("appArmorProfile");
        let value = if own.exists() { own.value } else { pod.get("appArmorProfile").value };
        check_profile_agreement(at.get(&key).value, &context.child_as("appArmorProfile", value), "apparmor", e);
    });
}

fn check_profile_agreement(annotation: &Value, field: &FieldCursor, what: &str, e: &mut ErrorList) {
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
