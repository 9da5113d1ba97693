//! Validation of the `resize` subresource.

use super::MIRROR_ANNOTATION;
use crate::validate::prelude::*;
use crate::{Map, qos};

/// Validates a resize.
pub fn validate_pod_resize(new: &FieldCursor, e: &mut ErrorList) {
    check_block("PodContent", new, e);
    let old = &new.old_cursor();
    let refuse = |e: &mut ErrorList, message: &str| {
        e.clear();
        e.push(FieldError::forbidden("", message));
    };
    if old.get("metadata").get("annotations").get(MIRROR_ANNOTATION).exists() {
        return refuse(e, "static pods cannot be resized");
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    if before.get("os").get("name").text() == "windows" {
        return refuse(e, "windows pods cannot be resized");
    }
    let class = |pod: &FieldCursor| crate::meta::string_at(pod.value, &["status", "qosClass"]).to_owned();
    let before_resize = Some(class(old)).filter(|class| !class.is_empty());
    if before_resize.unwrap_or_else(|| qos::pod_qos_class(old.value).to_owned()) != qos::pod_qos_class(new.value) {
        e.push(FieldError::invalid("spec", class(new), "Pod QOS Class may not change as a result of resizing"));
    }
    if !is_resize_supported(old) {
        spec.forbidden(e, "Pod running on node without support for resize");
    }
    if !check_same_containers(&spec, &before, e) {
        return;
    }
    check_removed_resources(&spec, &before, e);
    let start = e.len();
    let mut munged = spec.value.clone();
    for (list, message) in [
        ("containers", "only cpu and memory resources are mutable"),
        ("initContainers", "only cpu and memory resources for init or sidecar containers are mutable"),
    ] {
        let (places, old) = (spec.get(list), before.get(list));
        for (at, container) in munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            restore_compute_resources(container, old.element(at).value);
            if !semantically_equal(container, old.element(at).value) {
                if list == "containers" { spec.forbidden(e, message) } else { places.element(at).forbidden(e, message) }
            }
        }
    }
    restore_compute_resources(&mut munged, before.value);
    if e.len() == start && start == 0 && !semantically_equal(&munged, before.value) {
        spec.forbidden(e, "only cpu and memory resources are mutable");
    }
}

fn is_resize_supported(pod: &FieldCursor) -> bool {
    let statuses = pod.get("status");
    let statuses = statuses.get("containerStatuses");
    let running = statuses.items().find(|status| status.get("state").get("running").exists());
    running.is_none_or(|status| status.get("resources").exists())
}

fn check_same_containers(spec: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) -> bool {
    let start = e.len();
    for list in ["containers", "initContainers"] {
        let (new, old) = (spec.get(list), old.get(list));
        if new.len() != old.len() {
            new.forbidden(e, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (new, old) in new.items().zip(old.items()) {
            if new.get("name").text() != old.get("name").text() {
                new.get("name").forbidden(e, format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    e.len() == start
}

/// Rejects removed requests and limits.
fn check_removed_resources(spec: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
    let (own, before) = (spec.get("resources"), old.get("resources"));
    if before.exists() && !own.exists() {
        own.forbidden(e, "pod-level resources cannot be removed");
    } else if before.exists() {
        check_removed_entries(&own, &before, "pod-level resource ", e);
    }
    for list in ["initContainers", "containers"] {
        let (new, old) = (spec.get(list), old.get(list));
        for (new, old) in new.items().zip(old.items()) {
            check_removed_entries(&new.get("resources"), &old.get("resources"), "resource ", e);
        }
    }
}

fn check_removed_entries(new: &FieldCursor, old: &FieldCursor, what: &str, e: &mut ErrorList) {
    for kind in ["requests", "limits"] {
        let (new, old) = (new.get(kind), old.get(kind));
        if old.entries().any(|(name, _)| !new.get(name).exists()) {
            new.forbidden(e, format!("{what}{kind} cannot be removed"));
        }
    }
}

/// Restores CPU and memory to their old values.
fn restore_compute_resources(owner: &mut Value, old: &Value) {
    for kind in ["requests", "limits"] {
        for name in ["cpu", "memory"] {
            let before = old["resources"][kind].get(name).cloned();
            let Some(owner) = owner.as_object_mut() else { return };
            if before.is_none() && !owner.contains_key("resources") {
                continue;
            }
            let resources = crate::meta::object_mut(owner.entry("resources").or_insert_with(|| Map::new().into()));
            let list = crate::meta::object_mut(resources.entry(kind).or_insert_with(|| Map::new().into()));
            match before {
                Some(value) => list.insert(name.to_owned(), value),
                None => list.remove(name),
            };
            if list.is_empty() {
                resources.remove(kind);
            }
        }
    }
    if old.get("resources").is_none() && owner["resources"].as_object().is_some_and(Map::is_empty) {
        owner.as_object_mut().map(|owner| owner.remove("resources"));
    }
}
