//! Validation of PersistentVolumeClaims beyond the rule tables.

use super::{pod::resources, prelude::*, resource_name as resource};
use crate::quantity::Quantity;
use crate::render;

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const IMMUTABLE_SPEC: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

/// Rejects ReadWriteOncePod with other access modes.
pub fn validate_used_by_one_pod(list: &FieldCursor, e: &mut ErrorList) {
    if ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"].iter().any(|mode| list.contains_text(mode)) {
        list.forbidden(e, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Validates the requested size; upstream reports errors under the resource name.
pub fn validate_claimed_size(resources: &FieldCursor, e: &mut ErrorList) {
    let requests = resources.get("requests");
    let (size, place) = (requests.get("storage"), resources.entry("storage"));
    if !size.exists() {
        place.required(e, "");
    } else if size.quantity_sign() <= 0 {
        place.invalid_as(e, size.value.clone(), "must be greater than zero");
    }
}

/// Validates the API group of a source, unless stored without one.
pub fn validate_source_group(source: &FieldCursor, e: &mut ErrorList) {
    let before = source.ancestor(1).old;
    if before["dataSource"]["apiGroup"].is_null() && before["dataSourceRef"]["apiGroup"].is_null() {
        source.get("apiGroup").check_optional_format(e, names::check_dns_subdomain);
    }
}

/// Requires dataSource and dataSourceRef to be equal.
pub fn validate_same_source(at: &FieldCursor, e: &mut ErrorList) {
    let (source, reference) = (at.get("dataSource"), at.get("dataSourceRef"));
    // Upstream renders a path here, which has no exported fields.
    let shown = BadValue::Rendered("{}".to_owned());
    if !source.exists() {
        return;
    }
    if !reference.get("namespace").is_empty() {
        return at.invalid_as(e, shown, "may not be specified when dataSourceRef.namespace is specified");
    }
    let equal = |field: &str| source.get(field).value == reference.get(field).value;
    if reference.exists() && !["apiGroup", "kind", "name"].into_iter().all(equal) {
        at.invalid_as(e, shown, "must match dataSourceRef");
    }
}

/// Validates an update: only a bound claim may grow.
pub fn validate_claim_change(new: &FieldCursor, e: &mut ErrorList) {
    let (old, spec) = (new.old_cursor(), new.get("spec"));
    let before = spec.old_cursor();
    let bound = new.get("status").get("phase").text() == "Bound";
    let (mut new_spec, mut old_spec) = (spec.value.clone(), before.value.clone());
    if before.get("volumeName").is_empty() {
        set_or_remove(&mut old_spec, "volumeName", spec.get("volumeName").value);
    }
    let note = |at: &FieldCursor| -> Option<String> {
        let value = at.get("metadata").get("annotations").get(STORAGE_CLASS).value;
        value.as_str().map(str::to_owned)
    };
    let (class, old_class) = (spec.get("storageClassName"), before.get("storageClassName"));
    let (noted, old_noted) = (note(new), note(&old));
    let from_note = old_noted.is_some()
        && !old_class.exists()
        && old_noted.as_deref() == class.value.as_str()
        && (noted.is_none() || noted == old_noted);
    if from_note {
        set_or_remove(&mut new_spec, "storageClassName", &Value::Null);
    } else {
        if noted.as_deref().unwrap_or_default() != old_noted.as_deref().unwrap_or_default() {
            let meta = new.get("metadata");
            let notes = meta.get("annotations");
            notes.get(STORAGE_CLASS).invalid_text(e, IMMUTABLE);
        }
        let unset = !old_class.exists() && class.exists();
        if unset && (old_noted.is_none() || old_noted.as_deref() == class.value.as_str()) {
            set_or_remove(&mut new_spec, "storageClassName", &Value::Null);
        }
    }
    let size = |at: &FieldCursor| at.get("resources").get("requests").get("storage").quantity();
    if bound {
        if let Some(request) = new_spec.pointer_mut("/resources/requests") {
            set_or_remove(request, "storage", &before.value["resources"]["requests"]["storage"]);
        }
        set_or_remove(&mut new_spec, "volumeAttributesClassName", before.get("volumeAttributesClassName").value);
    }
    if !semantically_equal(&new_spec, &old_spec) {
        let shown = render::render_difference("core/v1.PersistentVolumeClaimSpec", &old_spec, &new_spec);
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
        new.child_as("volumeMode", spec.get("volumeMode").value).invalid(e, IMMUTABLE);
    }
    validate_attributes_class_update(&spec, &before, &old, e);
}

fn validate_attributes_class_update(spec: &FieldCursor, before: &FieldCursor, old: &FieldCursor, e: &mut ErrorList) {
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

/// Validates resize statuses.
pub fn validate_resize_statuses(at: &FieldCursor, e: &mut ErrorList) {
    const RESIZES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (name, state) in at.entries() {
        validate_resource_key(name, at, e);
        if !RESIZES.contains(&state.text()) {
            at.not_supported_as(e, name, RESIZES);
        }
    }
}

pub fn validate_allocated_resources(at: &FieldCursor, e: &mut ErrorList) {
    for (name, amount) in at.entries() {
        if validate_resource_key(name, at, e) && validate_basic_quantity(&amount, e) {
            resources::validate_quantity_value("storage", &amount, e);
        }
    }
}

pub fn validate_amount_of_storage(at: &FieldCursor, e: &mut ErrorList) {
    validate_basic_quantity(at, e);
}

fn validate_resource_key(name: &str, at: &FieldCursor, e: &mut ErrorList) -> bool {
    let faults = names::check_qualified_name(name);
    let wrong = faults.is_empty() && resource::is_native_resource(name) && name != "storage";
    if wrong {
        at.not_supported_as(e, name, &["storage"]);
    }
    let right = faults.is_empty() && !wrong;
    faults.into_iter().for_each(|fault| at.invalid_as(e, name, fault));
    right
}

/// Requires a quantity of at least 0; returns whether it is.
pub(super) fn validate_basic_quantity(at: &FieldCursor, e: &mut ErrorList) -> bool {
    let value = at.quantity().map_or(0, |quantity| quantity.value());
    if value < 0 {
        at.invalid_as(e, value, "must be a valid resource quantity");
    }
    value >= 0
}
