//! The owners of an object's replicas, as a `Scale` shows them, and back.

use super::{
    managed::{Managed, Unreadable},
    set::Set,
};
use crate::Value;

/// Where a `Scale` and everything that is scaled have their replicas.
const REPLICAS: &str = "spec.replicas";
const VERSION: &str = "autoscaling/v1";

/// Gives a `Scale` the owners of the replicas of its object.
pub fn show(parent: &Value, scale: &mut Value) -> Result<(), Unreadable> {
    let mut managed = Managed::of(parent)?;
    let replicas = Set::of_fields(&[REPLICAS]);
    managed.entries.retain_mut(|entry| {
        let owns = !entry.set.intersection(&replicas).is_empty();
        entry.set = replicas.clone();
        entry.api_version = VERSION.to_owned();
        owns
    });
    managed.write(scale);
    Ok(())
}

/// The owners of an object after its `Scale` was written, in the version that the path has.
pub fn merge(parent: &Value, scale: &Value, api_version: &str) -> Result<Managed, Unreadable> {
    let (parents, mut scales) = (Managed::of(parent)?, Managed::of(scale)?);
    let replicas = Set::of_fields(&[REPLICAS]);
    let mut out = Managed::default();
    for mut entry in parents.entries.iter().cloned() {
        if !entry.set.intersection(&replicas).is_empty() {
            match scales.entries.iter().position(|scale| scale.is_same(&entry)) {
                Some(at) => {
                    scales.entries.remove(at);
                }
                None => entry.set = std::mem::take(&mut entry.set).difference(&replicas),
            }
        }
        if !entry.set.is_empty() {
            out.entries.push(entry);
        }
    }
    for mut entry in scales.entries {
        if !entry.set.intersection(&replicas).is_empty() {
            entry.time = parents.find(&entry).and_then(|known| known.time.clone());
            entry.set = replicas.clone();
            entry.api_version = api_version.to_owned();
            out.entries.push(entry);
        }
    }
    Ok(out)
}
