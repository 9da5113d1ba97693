//! CRDs: stored versions, and the finalizer that deletes custom resources first.

use api::{Value, meta, validate::FieldError};
use apiextensions::{CRD_FINALIZER, set_condition};
use apiserver_core::User;
use serde_json::json;

use super::Strategy;

/// The strategy of CRDs.
pub struct CrdStrategy;

impl Strategy for CrdStrategy {
    fn prepare_create(&self, definition: &mut Value, _: &User) {
        add_stored_version(definition);
    }

    fn prepare_update(&self, definition: &mut Value, _: &Value) {
        add_stored_version(definition);
    }

    /// CEL rules are compiled only if the schemas are valid.
    fn validate_object(&self, definition: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        if errors.is_empty() {
            errors.extend(apiextensions::validate_crd_rules(definition, current));
        }
    }

    /// The next request of the client may use the custom resource.
    fn awaits_index(&self) -> bool {
        true
    }

    fn reports_update_conflict(&self) -> bool {
        true
    }

    /// CRDs have no grace period, and their deletion does not bump the generation.
    fn begin_deletion(&self, definition: &mut Value) {
        let metadata = meta::metadata_mut(definition);
        metadata.remove("deletionGracePeriodSeconds");
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".into(), (generation - 1).into());
        }
        let finalizers = meta::metadata_mut(definition).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.contains(&CRD_FINALIZER.into())
        {
            list.push(CRD_FINALIZER.into());
        }
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        set_condition(definition, ["Terminating", "True", "InstanceDeletionPending", message]);
    }
}

/// Adds the storage version to `status.storedVersions`.
fn add_stored_version(definition: &mut Value) {
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
