//! Definitions of custom resources: which versions were ever stored, and the instances that go first.

use api::{Value, meta, validate::FieldError};
use apiextensions::{crd_status_controller::FINALIZER, set_condition};
use apiserver_core::User;
use serde_json::json;

use super::Strategy;

/// The strategy of definitions.
pub struct Definition;

impl Strategy for Definition {
    fn prepare_create(&self, definition: &mut Value, _: &User) {
        note_stored(definition);
    }

    fn prepare_update(&self, definition: &mut Value, _: &Value) {
        note_stored(definition);
    }

    /// Rules are looked at in schemas that make sense.
    fn check(&self, definition: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        if errors.is_empty() {
            errors.extend(apiextensions::check(definition, current));
        }
    }

    /// What follows may use the resource.
    fn is_awaited(&self) -> bool {
        true
    }

    fn deletes_like_changes(&self) -> bool {
        true
    }

    /// Definitions have no grace, and their deletion is no new generation.
    fn begin_deletion(&self, definition: &mut Value) {
        let metadata = meta::metadata_mut(definition);
        metadata.remove("deletionGracePeriodSeconds");
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".into(), (generation - 1).into());
        }
        let finalizers = meta::metadata_mut(definition).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.contains(&FINALIZER.into())
        {
            list.push(FINALIZER.into());
        }
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        set_condition(definition, ["Terminating", "True", "InstanceDeletionPending", message]);
    }
}

/// The version that is stored from now on is among those that were.
fn note_stored(definition: &mut Value) {
    let versions = meta::list_at(definition, &["spec", "versions"]);
    let Some(stored) = versions.iter().find(|version| version["storage"] == true) else { return };
    let stored = stored["name"].clone();
    let known = meta::field_mut(definition, "status").entry("storedVersions").or_insert_with(|| json!([]));
    if !known.is_array() {
        *known = json!([]);
    }
    if let Some(list) = known.as_array_mut()
        && !list.contains(&stored)
    {
        list.push(stored);
    }
}
