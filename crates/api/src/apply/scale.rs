//! The owners of an object's replicas, as a `Scale` shows them, and back.

use super::{
    managed::{ManagedFields, ManagedFieldsError},
    set::Set,
};
use crate::Value;

/// Where a `Scale`, and everything built in that is scaled, has its replicas.
pub const REPLICAS: &str = "spec.replicas";
const VERSION: &str = "autoscaling/v1";

/// Gives a `Scale` the owners of the replicas of its object, which are at `path`.
pub fn show(parent: &Value, scale: &mut Value, path: &str) -> Result<(), ManagedFieldsError> {
    let mut managed = ManagedFields::from_object(parent)?;
    let (replicas, scaled) = (Set::of_fields(&[REPLICAS]), Set::of_fields(&[path]));
    managed.entries.retain_mut(|entry| {
        let owns = !entry.fields.intersection(&scaled).is_empty();
        entry.fields = replicas.clone();
        entry.api_version = VERSION.to_owned();
        owns
    });
    managed.write(scale);
    Ok(())
}

/// The owners of an object, whose replicas are at `path`, after its `Scale` was written, in a version.
pub fn merge(
    parent: &Value,
    scale: &Value,
    api_version: &str,
    path: &str,
) -> Result<ManagedFields, ManagedFieldsError> {
    let (parents, mut scales) = (ManagedFields::from_object(parent)?, ManagedFields::from_object(scale)?);
    let (shown, replicas) = (Set::of_fields(&[REPLICAS]), Set::of_fields(&[path]));
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
