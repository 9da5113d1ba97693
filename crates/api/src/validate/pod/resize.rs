//! Validation of changes to what a running pod asks for.

use super::MIRROR;
use crate::validate::prelude::*;
use crate::{Map, qos};

/// The faults of a pod whose resources change.
pub fn pod_resize(new: &At, e: &mut Errors) {
    rules::check("PodContent", new, e);
    let old = &new.before();
    let refuse = |e: &mut Errors, message: &str| {
        e.clear();
        e.push(FieldError::forbidden("", message));
    };
    if old.get("metadata").get("annotations").get(MIRROR).exists() {
        return refuse(e, "static pods cannot be resized");
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    if before.get("os").get("name").text() == "windows" {
        return refuse(e, "windows pods cannot be resized");
    }
    let class = |pod: &At| crate::meta::text(pod.value, &["status", "qosClass"]).to_owned();
    let before_resize = Some(class(old)).filter(|class| !class.is_empty());
    if before_resize.unwrap_or_else(|| qos::class(old.value).to_owned()) != qos::class(new.value) {
        e.push(FieldError::invalid("spec", class(new), "Pod QOS Class may not change as a result of resizing"));
    }
    if !supported(old) {
        spec.forbidden(e, "Pod running on node without support for resize");
    }
    if !same_containers(&spec, &before, e) {
        return;
    }
    removals(&spec, &before, e);
    let start = e.len();
    let mut munged = spec.value.clone();
    for (list, message) in [
        ("containers", "only cpu and memory resources are mutable"),
        ("initContainers", "only cpu and memory resources for init or sidecar containers are mutable"),
    ] {
        let (places, old) = (spec.get(list), before.get(list));
        for (at, container) in munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            restore(container, old.index(at).value);
            if !same(container, old.index(at).value) {
                if list == "containers" { spec.forbidden(e, message) } else { places.index(at).forbidden(e, message) }
            }
        }
    }
    restore(&mut munged, before.value);
    if e.len() == start && start == 0 && !same(&munged, before.value) {
        spec.forbidden(e, "only cpu and memory resources are mutable");
    }
}

fn supported(pod: &At) -> bool {
    let statuses = pod.get("status");
    let statuses = statuses.get("containerStatuses");
    let running = statuses.items().find(|status| status.get("state").get("running").exists());
    running.is_none_or(|status| status.get("resources").exists())
}

fn same_containers(spec: &At, old: &At, e: &mut Errors) -> bool {
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

/// What was asked for may change, not vanish.
fn removals(spec: &At, old: &At, e: &mut Errors) {
    let (own, before) = (spec.get("resources"), old.get("resources"));
    if before.exists() && !own.exists() {
        own.forbidden(e, "pod-level resources cannot be removed");
    } else if before.exists() {
        gone(&own, &before, "pod-level resource ", e);
    }
    for list in ["initContainers", "containers"] {
        let (new, old) = (spec.get(list), old.get(list));
        for (new, old) in new.items().zip(old.items()) {
            gone(&new.get("resources"), &old.get("resources"), "resource ", e);
        }
    }
}

fn gone(new: &At, old: &At, what: &str, e: &mut Errors) {
    for kind in ["requests", "limits"] {
        let (new, old) = (new.get(kind), old.get(kind));
        if old.entries().any(|(name, _)| !new.get(name).exists()) {
            new.forbidden(e, format!("{what}{kind} cannot be removed"));
        }
    }
}

/// CPU and memory as they were.
fn restore(owner: &mut Value, old: &Value) {
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
