//! Validation of namespaces.

use super::{Errors, at::At, metadata, names};

/// The faults of a namespace.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    if old.is_none() {
        finalizers(new, false, e);
    }
}

/// The faults of the finalizers of a namespace; they are told at the list when it is new.
fn finalizers(namespace: &At, indexed: bool, e: &mut Errors) {
    let spec = namespace.get("spec");
    let list = spec.get("finalizers");
    for finalizer in list.items() {
        let place = if indexed { finalizer } else { spec.called("finalizers", finalizer.value) };
        place.form(e, names::qualified);
        metadata::known_finalizer(&place, e);
    }
}

/// The faults of a namespace whose content is gone.
pub(super) fn finalize(new: &At, e: &mut Errors) {
    finalizers(new, true, e);
}

/// The faults of the status of a namespace.
pub(super) fn status(new: &At, _: &At, e: &mut Errors) {
    let status = new.get("status");
    let phase = status.called("Phase", status.get("phase").value);
    if !new.get("metadata").get("deletionTimestamp").exists() {
        if phase.text() != "Active" {
            phase.invalid_text(e, "may only be 'Active' if `deletionTimestamp` is empty");
        }
    } else if phase.text() != "Terminating" {
        phase.invalid_text(e, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}
