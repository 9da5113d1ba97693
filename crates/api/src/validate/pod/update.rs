//! Validation of pod updates: most of the spec is immutable.

use super::{MIRROR_ANNOTATION, annotations, annotations::APP_ARMOR};
use crate::{render, validate::prelude::*};

const IMMUTABLE_FIELDS: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates a pod update beyond the rules of any pod.
pub fn validate_pod_change(new: &FieldCursor, e: &mut ErrorList) {
    let old = new.old_cursor();
    validate_annotations_kept(new, e);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        if !check_container_count(&spec.get(list), &before.get(list), e) {
            return;
        }
    }
    if !check_deadline(&spec.get("activeDeadlineSeconds"), &before.get("activeDeadlineSeconds"), e) {
        return;
    }
    check_tolerations(&spec.get("tolerations"), &before.get("tolerations"), e);
    check_scheduling_gates(&spec.get("schedulingGates"), &before.get("schedulingGates"), e);
    if semantically_equal(spec.value, before.value) {
        return;
    }
    let munged = restore_mutable_fields(&spec, &before, e);
    if !semantically_equal(&munged, before.value) {
        let shown = render::render_difference("core/v1.PodSpec", before.value, &munged);
        spec.forbidden(e, format!("{IMMUTABLE_FIELDS}\n{shown}"));
    }
}

/// Validates an annotation update.
pub fn validate_annotations_kept(new: &FieldCursor, e: &mut ErrorList) {
    let meta = new.get("metadata");
    let notes = meta.get("annotations");
    let before = notes.old_cursor();
    for (key, _) in before.entries().filter(|(key, value)| notes.entry(key).value != value.value) {
        if key.starts_with(APP_ARMOR) {
            notes.entry(key).forbidden(e, "may not remove or update AppArmor annotations");
        }
        if key == MIRROR_ANNOTATION {
            notes.entry(key).forbidden(e, "may not remove or update mirror pod annotation");
        }
    }
    for (key, note) in notes.entries().filter(|(key, _)| !before.entry(key).exists()) {
        if key.starts_with(APP_ARMOR) {
            note.forbidden(e, "may not add AppArmor annotations");
        }
        if key == MIRROR_ANNOTATION {
            note.forbidden(e, "may not add mirror pod annotation");
        }
    }
    annotations::validate_pod_annotations(&notes, e);
}

fn check_container_count(new: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) -> bool {
    if new.len() != old.len() {
        new.forbidden(e, "pod updates may not add or remove containers");
        return false;
    }
    for container in new.items() {
        let image = container.get("image");
        image.require_value(e);
        check_block("TrimmedImage", &image, e);
    }
    true
}

fn check_deadline(new: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) -> bool {
    let before = e.len();
    if new.exists() {
        new.require_in_range(e, 0, i64::from(i32::MAX));
        if e.len() == before && old.exists() && old.int() < new.int() {
            new.invalid(e, "must be less than or equal to previous value");
        }
    } else if old.exists() {
        new.invalid(e, "must not update from a positive integer to nil value");
        return true;
    }
    e.len() == before
}

fn check_tolerations(new: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
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
    new.items().for_each(|toleration| check_block("Toleration", &toleration, e));
}

fn check_scheduling_gates(new: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
    for gate in new.items() {
        let name = gate.get("name");
        if !old.items().any(|old| old.get("name").text() == name.text()) {
            let message = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            name.forbidden(e, message);
        }
    }
}

/// Returns the new spec with mutable fields reset.
fn restore_mutable_fields(spec: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) -> Value {
    let mut munged = spec.value.clone();
    for list in ["containers", "initContainers"] {
        let before = old.get(list);
        for (at, container) in munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            set_or_remove(container, "image", before.element(at).get("image").value);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        set_or_remove(&mut munged, field, old.get(field).value);
    }
    let grace = old.get("terminationGracePeriodSeconds");
    if grace.int() < 0 && spec.get("terminationGracePeriodSeconds").int() == 1 {
        set_or_remove(&mut munged, "terminationGracePeriodSeconds", grace.value);
    }
    if !old.get("schedulingGates").is_empty() {
        check_gated_update(&mut munged, spec, old, e);
    }
    munged
}

/// Allows narrowing of node affinity while scheduling gates exist.
fn check_gated_update(munged: &mut Value, spec: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
    let (selector, before) = (spec.get("nodeSelector"), old.get("nodeSelector"));
    if before.entries().any(|(key, value)| selector.get(key).value != value.value) {
        selector.invalid(e, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
    }
    set_or_remove(munged, "nodeSelector", before.value);
    let (affinity, old_affinity) = (spec.get("affinity"), old.get("affinity"));
    let (nodes, before) = (affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity"));
    if semantically_equal(nodes.value, before.value) {
        return;
    }
    check_node_affinity(&nodes, &before, e);
    let mut kept = if affinity.exists() { affinity.value.clone() } else { serde_json::json!({}) };
    set_or_remove(&mut kept, "nodeAffinity", before.value);
    let empty = FieldCursor::for_create(&kept).is_empty() && !old_affinity.exists();
    set_or_remove(munged, "affinity", if empty { &Value::Null } else { &kept });
}

fn check_node_affinity(new: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
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
            render_bad_value(ty, terms.value),
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
    }
    for (term, old) in terms.items().zip(before.items()) {
        if !has_only_additions(&term, &old) {
            term.invalid_struct(e, ty, "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn has_only_additions(new: &FieldCursor, old: &FieldCursor) -> bool {
    let empty = |at: &FieldCursor| at.get("matchExpressions").is_empty() && at.get("matchFields").is_empty();
    if empty(old) && !empty(new) {
        return false;
    }
    ["matchExpressions", "matchFields"].iter().all(|list| {
        let (new, old) = (new.get(list), old.get(list));
        old.len() <= new.len() && old.items().zip(new.items()).all(|(old, new)| old.value == new.value)
    })
}

/// Validates an update of ephemeral containers.
pub fn validate_pod_debug(new: &FieldCursor, e: &mut ErrorList) {
    let old = new.old_cursor();
    check_block("PodContent", new, e);
    validate_annotations_kept(new, e);
    if old.get("metadata").get("annotations").get(MIRROR_ANNOTATION).exists() {
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
            Some(new) if !semantically_equal(new.value, container.value) => {
                let shown = render::render_difference("core/v1.EphemeralContainer", container.value, new.value);
                list.forbidden(e, format!("existing ephemeral containers {name:?} may not be changed\n{shown}"));
            }
            Some(_) => {}
        }
    }
}
