//! Validation of persistent volume claims, and of the templates for them.

use super::{Errors, at::At, diff, metadata, names, pod::resources, render::same, resource_name as resource, selector};
use crate::{Value, quantity::Quantity};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const IMMUTABLE_SPEC: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

/// The faults of a claim.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    spec(&new.get("spec"), old.map(|old| old.get("spec").value), e);
    if let Some(old) = old {
        changed(new, old, e);
    }
}

/// The faults of how volumes may be accessed; they are told at the list.
pub(super) fn access_modes(list: &At, e: &mut Errors) {
    for mode in list.texts().filter(|mode| !ACCESS_MODES.contains(mode)) {
        e.push(super::FieldError::not_supported(list.to_string(), mode, ACCESS_MODES));
    }
    let alone = list.texts().any(|mode| mode == "ReadWriteOncePod");
    let others = list.texts().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode));
    if alone && others {
        list.forbidden(e, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The faults of the specification of a claim.
pub(super) fn spec(at: &At, old: Option<&Value>, e: &mut Errors) {
    let modes = at.get("accessModes");
    if modes.is_empty() {
        modes.required(e, "at least 1 access mode is required");
    }
    let lenient = old.is_some_and(|old| selector::is_faulty(&old["selector"]));
    selector::lenient(&at.get("selector"), lenient, e);
    access_modes(&modes, e);
    let storage = at.get("resources");
    let size = storage.get("requests").get("storage").value;
    let place = storage.key("storage");
    if size.is_null() {
        place.required(e, "");
    } else if sign(size) <= 0 {
        place.invalid_as(e, size.clone(), "must be greater than zero");
    }
    at.get("storageClassName").optional_form(e, names::subdomain);
    at.get("volumeMode").one_of(e, &["Block", "Filesystem"]);
    let had_group =
        old.is_some_and(|old| !old["dataSource"]["apiGroup"].is_null() || !old["dataSourceRef"]["apiGroup"].is_null());
    data_sources(at, had_group, e);
    at.get("volumeAttributesClassName").optional_form(e, names::subdomain);
}

fn sign(value: &Value) -> i32 {
    At::top(value).sign()
}

fn data_sources(at: &At, had_group: bool, e: &mut Errors) {
    let (source, reference) = (at.get("dataSource"), at.get("dataSourceRef"));
    for source in [&source, &reference] {
        if !source.exists() {
            continue;
        }
        source.get("name").require(e);
        source.get("kind").require(e);
        let (group, kind) = (source.get("apiGroup"), source.get("kind").text());
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            source.invalid_as(e, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
        }
        if !had_group {
            group.optional_form(e, names::subdomain);
        }
        source.get("namespace").optional_form(e, names::label);
    }
    // Upstream shows a path here, which has no fields that it could show.
    let shown = super::Bad::Shown("{}".to_owned());
    if !reference.get("namespace").is_empty() {
        if source.exists() {
            at.invalid_as(e, shown, "may not be specified when dataSourceRef.namespace is specified");
        }
    } else if source.exists() && reference.exists() {
        let equal = |field: &str| source.get(field).value == reference.get(field).value;
        if !["apiGroup", "kind", "name"].into_iter().all(equal) {
            at.invalid_as(e, shown, "must match dataSourceRef");
        }
    }
}

/// The faults of a template of claims.
pub(super) fn template(at: &At, e: &mut Errors) {
    let meta = at.get("metadata");
    metadata::annotations(&meta.get("annotations"), e);
    selector::labels(&meta.get("labels"), e);
    for (field, _) in meta.value.as_object().into_iter().flatten() {
        if field != "annotations" && field != "labels" {
            meta.get(field).forbidden(e, "cannot be set");
        }
    }
    spec(&at.get("spec"), None, e);
}

fn changed(new: &At, old: &At, e: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let bound = new.get("status").get("phase").text() == "Bound";
    let (mut new_spec, mut old_spec) = (spec.value.clone(), before.value.clone());
    if before.get("volumeName").is_empty() {
        copy(&spec, &mut old_spec, "volumeName");
    }
    let note = |at: &At| -> Option<String> {
        let value = at.get("metadata").get("annotations").get(STORAGE_CLASS).value;
        value.as_str().map(str::to_owned)
    };
    let (class, old_class) = (spec.get("storageClassName"), before.get("storageClassName"));
    let (noted, old_noted) = (note(new), note(old));
    let from_note = old_noted.is_some()
        && !old_class.exists()
        && old_noted.as_deref() == class.value.as_str()
        && (noted.is_none() || noted == old_noted);
    if from_note {
        set(&mut new_spec, "storageClassName", &Value::Null);
    } else {
        if noted.as_deref().unwrap_or_default() != old_noted.as_deref().unwrap_or_default() {
            let meta = new.get("metadata");
            let notes = meta.get("annotations");
            notes.get(STORAGE_CLASS).invalid_text(e, super::at::IMMUTABLE);
        }
        let unset = !old_class.exists() && class.exists();
        if unset && (old_noted.is_none() || old_noted.as_deref() == class.value.as_str()) {
            set(&mut new_spec, "storageClassName", &Value::Null);
        }
    }
    let size = |at: &At| at.get("resources").get("requests").get("storage").quantity();
    if bound {
        if let Some(request) = new_spec.pointer_mut("/resources/requests") {
            set(request, "storage", &before.value["resources"]["requests"]["storage"]);
        }
        set(&mut new_spec, "volumeAttributesClassName", before.get("volumeAttributesClassName").value);
    }
    if !same(&new_spec, &old_spec) {
        let shown = diff::of("core/v1.PersistentVolumeClaimSpec", &old_spec, &new_spec);
        spec.forbidden(e, format!("{IMMUTABLE_SPEC}\n{shown}"));
    }
    let amount = |quantity: Option<Quantity>| quantity.or_else(|| Quantity::parse("0"));
    let capacity = amount(old.get("status").get("capacity").get("storage").quantity());
    let (now, was) = (amount(size(&spec)), amount(size(&before)));
    if now < was && now <= capacity {
        let place = spec.get("resources");
        place.get("requests").get("storage").forbidden(e, "field can not be less than status.capacity");
    }
    if spec.get("volumeMode").value != before.get("volumeMode").value {
        new.called("volumeMode", spec.get("volumeMode").value).invalid(e, super::at::IMMUTABLE);
    }
    attributes_class(&spec, &before, old, e);
}

fn attributes_class(spec: &At, before: &At, old: &At, e: &mut Errors) {
    let class = spec.get("volumeAttributesClassName");
    let in_use = old.get("status").get("currentVolumeAttributesClassName").exists();
    if !in_use || class.value == before.get("volumeAttributesClassName").value {
        return;
    }
    if !class.exists() {
        class.forbidden(e, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil");
    } else if class.is_empty() {
        class.forbidden(
            e,
            "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil",
        );
    }
}

fn copy(from: &At, to: &mut Value, field: &str) {
    set(to, field, from.get(field).value);
}

fn set(object: &mut Value, field: &str, value: &Value) {
    let Some(map) = object.as_object_mut() else { return };
    if value.is_null() {
        map.remove(field);
    } else {
        map.insert(field.to_owned(), value.clone());
    }
}

/// The faults of the status of a claim.
pub(super) fn status(new: &At, _: &At, e: &mut Errors) {
    const RESIZES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    if new.get("spec").get("accessModes").is_empty() {
        new.get("Spec").get("accessModes").required(e, "");
    }
    let status = new.get("status");
    for (_, amount) in status.get("capacity").entries() {
        basic_amount(&amount, e);
    }
    let resizes = status.get("allocatedResourceStatuses");
    for (name, state) in resizes.entries() {
        resource_key(name, &resizes, e);
        if !RESIZES.contains(&state.text()) {
            e.push(super::FieldError::not_supported(resizes.to_string(), name, RESIZES));
        }
    }
    let allocated = status.get("allocatedResources");
    for (name, amount) in allocated.entries() {
        if resource_key(name, &allocated, e) && basic_amount(&amount, e) {
            resources::amount("storage", &amount, e);
        }
    }
}

fn resource_key(name: &str, at: &At, e: &mut Errors) -> bool {
    let faults = names::qualified(name);
    let wrong = faults.is_empty() && resource::is_native(name) && name != "storage";
    if wrong {
        e.push(super::FieldError::not_supported(at.to_string(), name, &["storage"]));
    }
    let right = faults.is_empty() && !wrong;
    faults.into_iter().for_each(|fault| at.invalid_as(e, name, fault));
    right
}

/// An amount is not negative. Whether it is so.
pub(super) fn basic_amount(at: &At, e: &mut Errors) -> bool {
    let value = at.quantity().map_or(0, |quantity| quantity.value());
    if value < 0 {
        at.invalid_as(e, value, "must be a valid resource quantity");
    }
    value >= 0
}
