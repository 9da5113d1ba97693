//! PersistentVolumeClaimResize: allows volume expansion only if the storage class sets `allowVolumeExpansion`.

use api::{Value, meta, quantity::Quantity, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "PersistentVolumeClaimResize",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object("", "persistentvolumeclaims", &[Operation::Update])],
    construct: |_| Ok(Box::new(PersistentVolumeClaimResize)),
};

const ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

struct PersistentVolumeClaimResize;

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, claim: &Value) -> Result<(), Status> {
        let Some(old) = attributes.old else { return Ok(()) };
        let size =
            |claim: &Value| Quantity::parse(meta::string_at(claim, &["spec", "resources", "requests", "storage"]));
        if size(claim).is_none() || size(claim).partial_cmp(&size(old)) != Some(std::cmp::Ordering::Greater) {
            return Ok(());
        }
        if meta::string_at(old, &["status", "phase"]) != "Bound" {
            return Err(attributes.new_forbidden(claim, "Only bound persistent volume claims can be expanded"));
        }
        if !allows_volume_expansion(attributes, claim_storage_class(claim), claim_storage_class(old)).await? {
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                       support resize";
            return Err(attributes.new_forbidden(claim, why));
        }
        Ok(())
    }
}

async fn allows_volume_expansion(
    attributes: &AdmissionAttributes<'_>,
    class: &str,
    before: &str,
) -> Result<bool, Status> {
    if class.is_empty() || class != before {
        return Ok(false);
    }
    let class = attributes.get_object(("storage.k8s.io", "v1", "storageclasses"), "", class).await?;
    Ok(class.is_some_and(|class| class["allowVolumeExpansion"] == true))
}

/// The storage class of a claim; the legacy beta annotation takes precedence.
fn claim_storage_class(claim: &Value) -> &str {
    match meta::string_at(claim, &["metadata", "annotations", ANNOTATION]) {
        "" => meta::string_at(claim, &["spec", "storageClassName"]),
        class => class,
    }
}
