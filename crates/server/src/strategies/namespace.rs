//! Namespaces: held by `spec.finalizers` until their contents are gone.

use api::{Value, meta};
use serde_json::json;

use super::Strategy;

/// The strategy of namespaces.
pub struct Namespace;

impl Strategy for Namespace {
    fn prepare_create(&self, namespace: &mut Value) {
        let name = meta::name(namespace).to_owned();
        let metadata = meta::metadata_mut(namespace);
        meta::object_mut(metadata.entry("labels").or_insert_with(|| json!({})))
            .insert("kubernetes.io/metadata.name".into(), name.into());
        let spec = meta::field_mut(namespace, "spec");
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.contains(&"kubernetes".into())
        {
            list.push("kubernetes".into());
        }
    }

    fn holds_deletion(&self, namespace: &Value) -> bool {
        !meta::list(namespace, &["spec", "finalizers"]).is_empty()
    }

    fn begin_deletion(&self, namespace: &mut Value) {
        meta::field_mut(namespace, "status").insert("phase".into(), "Terminating".into());
    }
}
