//! Server-side apply: field ownership and merging of applied configurations.
//!
//! [`track_update`] runs for every write other than an apply, with the object as the client sent it; [`apply_config`] merges a
//! configuration into an object. Both maintain `metadata.managedFields` as upstream does.

mod comparison;
mod conflict;
mod field_set;
mod last_applied;
mod managed_fields;
mod merge;
mod object_fields;
mod ownership;
mod path_element;
pub mod scale_ownership;
mod schema_check;
mod target;
mod type_view;
mod unowned_apply;

#[cfg(test)]
mod tests;

pub use comparison::Comparison;
pub use conflict::{ApplyError, FieldConflict};
pub use field_set::{FieldNode, FieldSet};
pub use managed_fields::{ManagedFields, ManagedFieldsEntry, ManagedFieldsError};
pub use path_element::{FieldName, MalformedElement, PathElement};
pub use schema_check::SchemaMismatch;
pub use target::{ApplyTarget, VersionConverter};
pub use type_view::{ChildView, KeyOrigin, ListKeyError, StructuralView, TypeView, ViewForm};
pub use unowned_apply::{OverlayError, apply_unowned};

use crate::{Value, decode, defaults, meta};

/// The manager of fields set before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of clients without a user agent.
const UNKNOWN_MANAGER: &str = "unknown";

/// The target, manager and time of an apply or update.
pub struct ApplyRequest<'a> {
    /// The target kind and path.
    pub target: ApplyTarget<'a>,
    /// The field manager; empty if unknown.
    pub manager: &'a str,
    /// The current time in the API's format, with seconds.
    pub now: &'a str,
}

impl ApplyRequest<'_> {
    fn new_entry(&self, manager: &str, applied: bool, set: FieldSet) -> ManagedFieldsEntry {
        let manager = if manager.is_empty() { UNKNOWN_MANAGER } else { manager };
        ManagedFieldsEntry {
            manager: manager.to_owned(),
            applied,
            api_version: self.target.api_version.clone(),
            subresource: self.target.subresource.to_owned(),
            time: Some(self.now.to_owned()),
            fields: set,
        }
    }
}

/// Records the manager of the fields that a write changes. `live` is absent on create; `object` is the requested
/// object, canonical and defaulted. Managed fields are dropped where they cannot be computed.
pub fn track_update(writer: &ApplyRequest, live: Option<&Value>, object: &mut Value) {
    let mut managed = requested_or_live(writer, live, object);
    meta::metadata_mut(object).remove("managedFields");
    // A client that resets the managed fields does not become a manager.
    if managed.entries.is_empty() && live.is_some_and(|live| !meta::uid(live).is_empty()) {
        return;
    }
    let nothing;
    let live = match live {
        Some(live) => live,
        None => {
            nothing = writer.target.zero_object();
            &nothing
        }
    };
    if assign_difference(writer, live, object, &mut managed, writer.manager).is_ok() {
        managed.write_to(object);
    }
}

/// Returns the managed fields that a client sends, if readable and not empty; otherwise the live ones.
fn requested_or_live(writer: &ApplyRequest, live: Option<&Value>, object: &Value) -> ManagedFields {
    let known = || live.and_then(|live| ManagedFields::from_object(live).ok()).unwrap_or_default();
    if !writer.target.subresource.is_empty() {
        return known();
    }
    if ManagedFields::requests_reset(object) {
        return ManagedFields::default();
    }
    match ManagedFields::from_object(object) {
        Ok(given) if !given.entries.is_empty() => given,
        _ => known(),
    }
}

/// Assigns the changed fields to a manager.
fn assign_difference(
    writer: &ApplyRequest,
    live: &Value,
    object: &Value,
    managed: &mut ManagedFields,
    manager: &str,
) -> Result<(), ApplyError> {
    let kind = &writer.target;
    ownership::reconcile_entries(kind, managed);
    let difference = ownership::transfer_ownership(kind, (live, object), managed, None, true)?;
    let set = managed_fields::strip_unowned_fields(difference.modified.union(difference.added));
    if !set.is_empty() {
        let mut entry = writer.new_entry(manager, false, set);
        if let Some(known) = managed.find_entry(&entry) {
            entry.fields = entry.fields.union(known.fields.clone());
        }
        managed.put_entry(entry);
    }
    managed.cap_update_managers();
    Ok(())
}

/// Applies a configuration: merges it, removes fields that the manager no longer applies, canonicalizes and defaults
/// the result, and updates managed fields. `live` is absent when the object does not exist.
pub fn apply_config(
    writer: &ApplyRequest,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    let kind = &writer.target;
    check_kind(kind, config)?;
    let nothing;
    let live = match live {
        Some(live) => live,
        None => {
            nothing = kind.zero_object();
            &nothing
        }
    };
    let mut managed = ManagedFields::from_object(live)?;
    if managed.entries.is_empty() {
        assign_difference(writer, &kind.zero_object(), live, &mut managed, BEFORE_FIRST_APPLY)?;
    }
    let mut result = merge_and_own(writer, live, config, managed.clone(), force);
    if writer.manager == last_applied::KUBECTL_MANAGER
        && let Err(ApplyError::Conflicts(conflicts)) = &result
        && let Some(rest) = last_applied::remaining_conflicts(kind, live, conflicts)
    {
        result = if rest.is_empty() {
            merge_and_own(writer, live, config, managed, true)
        } else {
            Err(ApplyError::Conflicts(rest))
        };
    }
    let (mut object, managed) = result?;
    managed.write_to(&mut object);
    if writer.manager == last_applied::KUBECTL_MANAGER {
        last_applied::refresh_annotation(&mut object, config);
    }
    Ok(object)
}

/// Checks that the configuration has the kind and version of the path and no managed fields.
fn check_kind(kind: &ApplyTarget, config: &Value) -> Result<(), ApplyError> {
    let (version, name) = (meta::string_at(config, &["apiVersion"]), meta::string_at(config, &["kind"]));
    if version != kind.api_version || name != kind.kind {
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(ApplyError::WrongType(format!("{slash}{version}, Kind={name}")));
    }
    match meta::value_at(config, &["metadata", "managedFields"]) {
        Some(_) => Err(ApplyError::ManagedFields),
        None => Ok(()),
    }
}

fn merge_and_own(
    writer: &ApplyRequest,
    live: &Value,
    config: &Value,
    mut managed: ManagedFields,
    force: bool,
) -> Result<(Value, ManagedFields), ApplyError> {
    let kind = &writer.target;
    let view = kind.type_view();
    let name =
        || format!("{}/{}; {}, Kind={}", meta::namespace(config), meta::name(config), kind.api_version, kind.kind);
    schema_check::check_object(view, config, false).map_err(|source| ApplyError::Patch { object: name(), source })?;
    schema_check::check_object(view, live, true).map_err(|source| ApplyError::Live { object: name(), source })?;
    ownership::reconcile_entries(kind, &mut managed);
    let merged = merge::merge_config(view, live, config)?;
    let set = object_fields::to_field_set(view, config).recursive_difference(&kind.reset_fields);
    let mut mine = writer.new_entry(writer.manager, true, set);
    let last = managed.find_entry(&mine).cloned();
    managed.put_entry(mine.clone());
    let merged = ownership::prune_abandoned(kind, merged, &managed, &mine, last.as_ref());
    ownership::transfer_ownership(kind, (live, &merged), &mut managed, Some(&mine), force)?;
    let same = *live == merged;
    managed.entries.retain(|entry| !entry.has_same_manager(&mine));
    mine.fields = managed_fields::strip_unowned_fields(mine.fields);
    if same {
        mine.time = last.and_then(|last| last.time);
    }
    if !mine.fields.is_empty() {
        managed.put_entry(mine);
    }
    let object = if same { live.clone() } else { canonicalize_result(kind, merged)? };
    Ok((object, managed))
}

fn canonicalize_result(kind: &ApplyTarget, mut object: Value) -> Result<Value, decode::DecodeError> {
    if let Some(custom) = kind.custom_schema() {
        decode::canonicalize_metadata(&mut object)?;
        custom.default(&mut object);
        return Ok(object);
    }
    let mut object = decode::canonicalize(kind.ty, object)?.object;
    defaults::apply_defaults(kind.ty, &mut object);
    Ok(object)
}

/// Whether two objects are equal apart from the times of managed fields.
pub fn equal_ignoring_timestamps(object: &Value, other: &Value) -> bool {
    let (Some(a), Some(b)) = (object.as_object(), other.as_object()) else { return object == other };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.0 == b.0 && if a.0 == "metadata" { equal_metadata(a.1, b.1) } else { a.1 == b.1 })
}

fn equal_metadata(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.0 == b.0 && if a.0 == "managedFields" { equal_entries(a.1, b.1) } else { a.1 == b.1 })
}

fn equal_entries(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else { return a == b };
    let timeless = |entry: &Value| {
        let mut entry = entry.clone();
        meta::object_mut(&mut entry).remove("time");
        entry
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || timeless(a) == timeless(b))
}
