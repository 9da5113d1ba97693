//! StorageObjectInUseProtection: adds the protection finalizers to volumes, claims and volume attributes classes.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "StorageObjectInUseProtection",
    on: true,
    about: &[
        ResourceRule::object("", "persistentvolumes", &[Operation::Create]),
        ResourceRule::object("", "persistentvolumeclaims", &[Operation::Create]),
        ResourceRule::object("storage.k8s.io", "volumeattributesclasses", &[Operation::Create]),
    ],
    make: |_| Ok(Box::new(StorageProtection)),
};

struct StorageProtection;

#[async_trait]
impl Plugin for StorageProtection {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let finalizer = match attributes.resource().name {
            "persistentvolumes" => "kubernetes.io/pv-protection",
            "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
            _ => "kubernetes.io/vac-protection",
        };
        if !meta::finalizers(object).any(|known| known == finalizer) {
            let list = meta::metadata_mut(object).entry("finalizers").or_insert_with(|| json!([]));
            list.as_array_mut().into_iter().for_each(|list| list.push(finalizer.into()));
        }
        Ok(())
    }
}
