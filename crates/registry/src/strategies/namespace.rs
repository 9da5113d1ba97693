//! Namespaces: `spec.finalizers` delay the deletion until the content is deleted.

use api::{Value, meta};
use apiserver_core::User;
use serde_json::json;

use super::{
    Strategy,
    subresource::{copy_fields, with_status},
};

/// The strategy of namespaces.
pub struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn prepare_create(&self, namespace: &mut Value, _: &User) {
        let spec = meta::field_mut(namespace, "spec");
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.contains(&"kubernetes".into())
        {
            list.push("kubernetes".into());
        }
    }

    fn prepare_update(&self, namespace: &mut Value, current: &Value) {
        let finalizers = current["spec"]["finalizers"].clone();
        meta::field_mut(namespace, "spec").insert("finalizers".into(), finalizers);
    }

    fn reports_update_conflict(&self) -> bool {
        true
    }

    /// `finalize` changes everything but the status.
    fn update_subresource(&self, subresource: &str, mut object: Value, current: &Value) -> Value {
        if subresource != "finalize" {
            return with_status(object, current);
        }
        copy_fields(&mut object, current, &["status"]);
        object
    }

    fn holds_deletion(&self, namespace: &Value) -> bool {
        !meta::list_at(namespace, &["spec", "finalizers"]).is_empty()
    }

    fn begin_deletion(&self, namespace: &mut Value) {
        meta::field_mut(namespace, "status").insert("phase".into(), "Terminating".into());
        // Upstream deletes namespaces without a grace period.
        meta::metadata_mut(namespace).remove("deletionGracePeriodSeconds");
    }
}
