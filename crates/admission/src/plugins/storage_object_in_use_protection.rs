//! StorageObjectInUseProtection: adds the protection finalizers to volumes, claims and volume attributes classes.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "StorageObjectInUseProtection",
    enabled_by_default: true,
    rules: &[
        ResourceRule::for_object("", "persistentvolumes", &[Operation::Create]),
        ResourceRule::for_object("", "persistentvolumeclaims", &[Operation::Create]),
        ResourceRule::for_object("storage.k8s.io", "volumeattributesclasses", &[Operation::Create]),
    ],
    construct: |_| Ok(Box::new(StorageObjectInUseProtection)),
};

struct StorageObjectInUseProtection;

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
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
