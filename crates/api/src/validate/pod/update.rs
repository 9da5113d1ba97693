//! Validation of changes to pods: nearly all of a specification is fixed once the pod exists.

use super::{MIRROR, annotations, annotations::APP_ARMOR};
use crate::validate::{prelude::*, render};

const FIXED: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The faults of a changed pod, beside those that any pod can have.
pub fn pod_change(new: &At, e: &mut Errors) {
    let old = new.before();
    annotations_kept(new, e);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        if !same_number(&spec.get(list), &before.get(list), e) {
            return;
        }
    }
    if !deadline(&spec.get("activeDeadlineSeconds"), &before.get("activeDeadlineSeconds"), e) {
        return;
    }
    only_added_tolerations(&spec.get("tolerations"), &before.get("tolerations"), e);
    only_removed_gates(&spec.get("schedulingGates"), &before.get("schedulingGates"), e);
    if same(spec.value, before.value) {
        return;
    }
    let munged = munged(&spec, &before, e);
    if !same(&munged, before.value) {
        let shown = render::difference("core/v1.PodSpec", before.value, &munged);
        spec.forbidden(e, format!("{FIXED}\n{shown}"));
    }
}

/// The faults of changed annotations.
pub fn annotations_kept(new: &At, e: &mut Errors) {
    let meta = new.get("metadata");
    let notes = meta.get("annotations");
    let before = notes.before();
    for (key, _) in before.entries().filter(|(key, value)| notes.key(key).value != value.value) {
        if key.starts_with(APP_ARMOR) {
            notes.key(key).forbidden(e, "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            notes.key(key).forbidden(e, "may not remove or update mirror pod annotation");
        }
    }
    for (key, note) in notes.entries().filter(|(key, _)| !before.key(key).exists()) {
        if key.starts_with(APP_ARMOR) {
            note.forbidden(e, "may not add AppArmor annotations");
        }
        if key == MIRROR {
            note.forbidden(e, "may not add mirror pod annotation");
        }
    }
    annotations::pod_annotations(&notes, e);
}

fn same_number(new: &At, old: &At, e: &mut Errors) -> bool {
    if new.len() != old.len() {
        new.forbidden(e, "pod updates may not add or remove containers");
        return false;
    }
    for container in new.items() {
        let image = container.get("image");
        image.require(e);
        rules::check("TrimmedImage", &image, e);
    }
    true
}

fn deadline(new: &At, old: &At, e: &mut Errors) -> bool {
    let before = e.len();
    if new.exists() {
        new.in_range(e, 0, i64::from(i32::MAX));
        if e.len() == before && old.exists() && old.int() < new.int() {
            new.invalid(e, "must be less than or equal to previous value");
        }
    } else if old.exists() {
        new.invalid(e, "must not update from a positive integer to nil value");
        return true;
    }
    e.len() == before
}

fn only_added_tolerations(new: &At, old: &At, e: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.as_object_mut().map(|map| map.remove("tolerationSeconds"));
        toleration
    };
    let kept = old.items().all(|old| {
        let old = without_seconds(old.value);
        new.items().any(|new| without_seconds(new.value) == old)
    });
    if !kept {
        return new.forbidden(e, "existing toleration can not be modified except its tolerationSeconds");
    }
    new.items().for_each(|toleration| rules::check("Toleration", &toleration, e));
}

fn only_removed_gates(new: &At, old: &At, e: &mut Errors) {
    for gate in new.items() {
        let name = gate.get("name");
        if !old.items().any(|old| old.get("name").text() == name.text()) {
            let message = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            name.forbidden(e, message);
        }
    }
}

/// The new specification with everything that may change as it was.
fn munged(spec: &At, old: &At, e: &mut Errors) -> Value {
    let mut munged = spec.value.clone();
    for list in ["containers", "initContainers"] {
        let before = old.get(list);
        for (at, container) in munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            put(container, "image", before.index(at).get("image").value);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put(&mut munged, field, old.get(field).value);
    }
    let grace = old.get("terminationGracePeriodSeconds");
    if grace.int() < 0 && spec.get("terminationGracePeriodSeconds").int() == 1 {
        put(&mut munged, "terminationGracePeriodSeconds", grace.value);
    }
    if !old.get("schedulingGates").is_empty() {
        gated(&mut munged, spec, old, e);
    }
    munged
}

/// While a pod is held back, it may still be narrowed to fewer nodes.
fn gated(munged: &mut Value, spec: &At, old: &At, e: &mut Errors) {
    let (selector, before) = (spec.get("nodeSelector"), old.get("nodeSelector"));
    if before.entries().any(|(key, value)| selector.get(key).value != value.value) {
        selector.invalid(e, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
    }
    put(munged, "nodeSelector", before.value);
    let (affinity, old_affinity) = (spec.get("affinity"), old.get("affinity"));
    let (nodes, before) = (affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity"));
    if same(nodes.value, before.value) {
        return;
    }
    node_affinity(&nodes, &before, e);
    let mut kept = if affinity.exists() { affinity.value.clone() } else { serde_json::json!({}) };
    put(&mut kept, "nodeAffinity", before.value);
    let empty = At::top(&kept).is_empty() && !old_affinity.exists();
    put(munged, "affinity", if empty { &Value::Null } else { &kept });
}

fn node_affinity(new: &At, old: &At, e: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let (required, before) = (new.get(REQUIRED), old.get(REQUIRED));
    if !before.exists() {
        return;
    }
    let (terms, before) = (required.get("nodeSelectorTerms"), before.get("nodeSelectorTerms"));
    let ty = "core/v1.NodeSelectorTerm";
    if !before.is_empty() && before.len() != terms.len() {
        return terms.invalid_as(
            e,
            Bad::of(ty, terms.value),
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
    }
    for (term, old) in terms.items().zip(before.items()) {
        if !only_additions(&term, &old) {
            term.invalid_struct(e, ty, "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn only_additions(new: &At, old: &At) -> bool {
    let empty = |at: &At| at.get("matchExpressions").is_empty() && at.get("matchFields").is_empty();
    if empty(old) && !empty(new) {
        return false;
    }
    ["matchExpressions", "matchFields"].iter().all(|list| {
        let (new, old) = (new.get(list), old.get(list));
        old.len() <= new.len() && old.items().zip(new.items()).all(|(old, new)| old.value == new.value)
    })
}

/// The faults of a pod that gets more containers for looking inside.
pub fn pod_debug(new: &At, e: &mut Errors) {
    let old = new.before();
    rules::check("PodContent", new, e);
    annotations_kept(new, e);
    if old.get("metadata").get("annotations").get(MIRROR).exists() {
        e.clear();
        e.push(FieldError::forbidden("", "static pods do not support ephemeral containers"));
        return;
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let list = spec.get("ephemeralContainers");
    for container in before.get("ephemeralContainers").items() {
        let name = container.get("name").text();
        match list.items().find(|new| new.get("name").text() == name) {
            None => list.forbidden(e, format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(new) if !same(new.value, container.value) => {
                let shown = render::difference("core/v1.EphemeralContainer", container.value, new.value);
                list.forbidden(e, format!("existing ephemeral containers {name:?} may not be changed\n{shown}"));
            }
            Some(_) => {}
        }
    }
}
