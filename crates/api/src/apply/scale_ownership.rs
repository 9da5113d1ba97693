//! Managed fields of the `scale` subresource, mapped between an object's replicas and its `Scale`.

use super::{
    field_set::FieldSet,
    managed_fields::{ManagedFields, ManagedFieldsError},
};
use crate::Value;

/// The path of the replicas in a `Scale` and in built-in scalable kinds.
pub const REPLICAS_PATH: &str = "spec.replicas";
const SCALE_VERSION: &str = "autoscaling/v1";

/// Sets the managed fields of a `Scale` from the managers of the parent's replicas at `path`.
pub fn copy_to_scale(parent: &Value, scale: &mut Value, path: &str) -> Result<(), ManagedFieldsError> {
    let mut managed = ManagedFields::from_object(parent)?;
    let (replicas, scaled) = (FieldSet::from_paths(&[REPLICAS_PATH]), FieldSet::from_paths(&[path]));
    managed.entries.retain_mut(|entry| {
        let owns = !entry.fields.intersection(&scaled).is_empty();
        entry.fields = replicas.clone();
        entry.api_version = SCALE_VERSION.to_owned();
        owns
    });
    managed.write_to(scale);
    Ok(())
}

/// Returns the parent's managed fields, in a version, after its `Scale` was written; the replicas are at `path`.
pub fn merge_from_scale(
    parent: &Value,
    scale: &Value,
    api_version: &str,
    path: &str,
) -> Result<ManagedFields, ManagedFieldsError> {
    let (parents, mut scales) = (ManagedFields::from_object(parent)?, ManagedFields::from_object(scale)?);
    let (shown, replicas) = (FieldSet::from_paths(&[REPLICAS_PATH]), FieldSet::from_paths(&[path]));
    let mut out = ManagedFields::default();
    for mut entry in parents.entries.iter().cloned() {
        if !entry.fields.intersection(&replicas).is_empty() {
            match scales.entries.iter().position(|scale| scale.has_same_manager(&entry)) {
                Some(at) => {
                    scales.entries.remove(at);
                }
                None => entry.fields = std::mem::take(&mut entry.fields).difference(&replicas),
            }
        }
        if !entry.fields.is_empty() {
            out.entries.push(entry);
        }
    }
    for mut entry in scales.entries {
        if !entry.fields.intersection(&shown).is_empty() {
            entry.time = parents.find_entry(&entry).and_then(|known| known.time.clone());
            entry.fields = replicas.clone();
            entry.api_version = api_version.to_owned();
            out.entries.push(entry);
        }
    }
    Ok(out)
}
