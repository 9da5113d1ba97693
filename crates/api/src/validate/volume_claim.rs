//! Claims of persistent volumes, as far as the tables cannot say what is right.

use super::{pod::resources, prelude::*, render, resource_name as resource};
use crate::quantity::Quantity;

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const IMMUTABLE_SPEC: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

/// A volume for one pod is used by it alone.
pub fn used_by_one_pod(list: &At, e: &mut Errors) {
    if ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"].iter().any(|mode| list.has(mode)) {
        list.forbidden(e, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Upstream tells a wrong size under the name of the resource alone.
pub fn claimed_size(resources: &At, e: &mut Errors) {
    let requests = resources.get("requests");
    let (size, place) = (requests.get("storage"), resources.key("storage"));
    if !size.exists() {
        place.required(e, "");
    } else if size.sign() <= 0 {
        place.invalid_as(e, size.value.clone(), "must be greater than zero");
    }
}

/// A group is checked once there was none.
pub fn source_group(source: &At, e: &mut Errors) {
    let before = source.up(1).old;
    if before["dataSource"]["apiGroup"].is_null() && before["dataSourceRef"]["apiGroup"].is_null() {
        source.get("apiGroup").optional_form(e, names::subdomain);
    }
}

/// Both ways to name a source name the same.
pub fn same_source(at: &At, e: &mut Errors) {
    let (source, reference) = (at.get("dataSource"), at.get("dataSourceRef"));
    // Upstream shows a path here, which has no fields that it could show.
    let shown = Bad::Shown("{}".to_owned());
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

/// A claim stays as it is; only a bound one may grow.
pub fn claim_change(new: &At, e: &mut Errors) {
    let (old, spec) = (new.before(), new.get("spec"));
    let before = spec.before();
    let bound = new.get("status").get("phase").text() == "Bound";
    let (mut new_spec, mut old_spec) = (spec.value.clone(), before.value.clone());
    if before.get("volumeName").is_empty() {
        put(&mut old_spec, "volumeName", spec.get("volumeName").value);
    }
    let note = |at: &At| -> Option<String> {
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
        put(&mut new_spec, "storageClassName", &Value::Null);
    } else {
        if noted.as_deref().unwrap_or_default() != old_noted.as_deref().unwrap_or_default() {
            let meta = new.get("metadata");
            let notes = meta.get("annotations");
            notes.get(STORAGE_CLASS).invalid_text(e, IMMUTABLE);
        }
        let unset = !old_class.exists() && class.exists();
        if unset && (old_noted.is_none() || old_noted.as_deref() == class.value.as_str()) {
            put(&mut new_spec, "storageClassName", &Value::Null);
        }
    }
    let size = |at: &At| at.get("resources").get("requests").get("storage").quantity();
    if bound {
        if let Some(request) = new_spec.pointer_mut("/resources/requests") {
            put(request, "storage", &before.value["resources"]["requests"]["storage"]);
        }
        put(&mut new_spec, "volumeAttributesClassName", before.get("volumeAttributesClassName").value);
    }
    if !same(&new_spec, &old_spec) {
        let shown = render::difference("core/v1.PersistentVolumeClaimSpec", &old_spec, &new_spec);
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
        new.called("volumeMode", spec.get("volumeMode").value).invalid(e, IMMUTABLE);
    }
    attributes_class(&spec, &before, &old, e);
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

/// The faults of how far resources are resized.
pub fn resize_statuses(at: &At, e: &mut Errors) {
    const RESIZES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (name, state) in at.entries() {
        resource_key(name, at, e);
        if !RESIZES.contains(&state.text()) {
            at.unsupported_as(e, name, RESIZES);
        }
    }
}

pub fn allocated_resources(at: &At, e: &mut Errors) {
    for (name, amount) in at.entries() {
        if resource_key(name, at, e) && basic_amount(&amount, e) {
            resources::amount("storage", &amount, e);
        }
    }
}

pub fn amount_of_storage(at: &At, e: &mut Errors) {
    basic_amount(at, e);
}

fn resource_key(name: &str, at: &At, e: &mut Errors) -> bool {
    let faults = names::qualified(name);
    let wrong = faults.is_empty() && resource::is_native(name) && name != "storage";
    if wrong {
        at.unsupported_as(e, name, &["storage"]);
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
