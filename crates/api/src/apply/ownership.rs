//! Ownership rules: a write takes fields from other managers, or conflicts with them.

use super::{
    comparison::Comparison,
    conflict::{ApplyError, FieldConflict},
    field_set::FieldSet,
    managed_fields::{ManagedFields, ManagedFieldsEntry},
    merge, object_fields,
    target::ApplyTarget,
    type_view::ListKeyError,
};
use crate::Value;

/// Removes the fields that differ between two objects from all managers but `me`, and returns the difference in the
/// version of the path. Without `force`, a difference in owned fields is a conflict.
pub fn transfer_ownership(
    kind: &ApplyTarget,
    (old, new): (&Value, &Value),
    managed: &mut ManagedFields,
    me: Option<&ManagedFieldsEntry>,
    force: bool,
) -> Result<Comparison, ApplyError> {
    let own = Comparison::between(kind.type_view(), old, new)?.exclude_fields(&kind.reset_fields);
    let mut others: Vec<(String, Option<Comparison>)> = Vec::new();
    let mut conflicts = Vec::new();
    let mut kept = Vec::with_capacity(managed.entries.len());
    for mut entry in managed.entries.drain(..) {
        if me.is_some_and(|me| me.has_same_manager(&entry)) {
            kept.push(entry);
            continue;
        }
        let difference = if entry.api_version == kind.api_version {
            Some(&own)
        } else {
            compare_in_version(kind, (old, new), &entry.api_version, &mut others)?
        };
        // Entries in a version that no longer exists are dropped.
        let Some(difference) = difference else { continue };
        let conflict = changed_fields(&entry.fields, difference);
        if !conflict.is_empty() {
            entry.fields = std::mem::take(&mut entry.fields).difference(&conflict);
            if !force {
                let owner = ManagedFieldsEntry { fields: FieldSet::default(), ..entry.clone() };
                conflicts.extend(conflict.paths().into_iter().map(|path| FieldConflict { owner: owner.clone(), path }));
            }
        }
        if !difference.removed.is_empty() {
            entry.fields = std::mem::take(&mut entry.fields).difference(&difference.removed);
        }
        kept.push(entry);
    }
    if !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.owner.identity_order(&b.owner));
        return Err(ApplyError::Conflicts(conflicts));
    }
    kept.retain(|entry| !entry.fields.is_empty());
    managed.entries = kept;
    Ok(own)
}

/// The fields of a set that are added or modified.
fn changed_fields(set: &FieldSet, difference: &Comparison) -> FieldSet {
    set.intersection(&difference.modified).union(set.intersection(&difference.added))
}

/// The difference in another version, computed once.
fn compare_in_version<'c>(
    kind: &ApplyTarget,
    (old, new): (&Value, &Value),
    version: &str,
    known: &'c mut Vec<(String, Option<Comparison>)>,
) -> Result<Option<&'c Comparison>, ListKeyError> {
    let at = match known.iter().position(|(name, _)| name == version) {
        Some(at) => at,
        None => {
            let difference = match (kind.convert_to_version(old, version), kind.convert_to_version(new, version)) {
                (Some((view, old)), Some((_, new))) => {
                    Some(Comparison::between(view, &old, &new)?.exclude_fields(&kind.reset_fields))
                }
                _ => None,
            };
            known.push((version.to_owned(), difference));
            known.len() - 1
        }
    };
    Ok(known[at].1.as_ref())
}

/// Adapts owned fields to the current schema; entries in a version that no longer exists are dropped.
pub fn reconcile_entries(kind: &ApplyTarget, managed: &mut ManagedFields) {
    managed.entries.retain_mut(|entry| {
        let Some(view) = kind.type_view_in(&entry.api_version) else { return false };
        object_fields::reconcile_with_schema(view, &mut entry.fields);
        true
    });
}

/// Removes fields that the applier owned, no longer applies, and that no other manager owns.
pub fn prune_abandoned(
    kind: &ApplyTarget,
    merged: Value,
    managed: &ManagedFields,
    mine: &ManagedFieldsEntry,
    last: Option<&ManagedFieldsEntry>,
) -> Value {
    let abandoned =
        |last: &&ManagedFieldsEntry| last.api_version != mine.api_version || !last.fields.is_subset(&mine.fields);
    let Some(last) = last.filter(abandoned) else { return merged };
    let Some((view, whole)) = kind.convert_to_version(&merged, &last.api_version) else { return merged };
    let before = object_fields::ensure_named_fields(Some(view), &last.fields);
    let mut pruned = merge::remove_fields(view, &whole, &before);
    for (version, owned) in owned_by_version(managed, &last.api_version) {
        let (Some((view, whole)), Some((_, rest))) =
            (kind.convert_to_version(&merged, &version), kind.convert_to_version(&pruned, &version))
        else {
            continue;
        };
        let named = |set: &FieldSet| object_fields::ensure_named_fields(Some(view), set);
        let keep = named(&object_fields::to_field_set(view, &rest)).union(named(&owned));
        let gone = named(&object_fields::to_field_set(view, &whole)).difference(&keep);
        pruned = merge::remove_fields(view, &whole, &gone);
    }
    let Some((_, rest)) = kind.convert_to_version(&pruned, &last.api_version) else { return merged };
    let named = |set: &FieldSet| object_fields::ensure_named_fields(Some(view), set);
    let gone =
        named(&object_fields::to_field_set(view, &whole)).difference(&named(&object_fields::to_field_set(view, &rest)));
    let result = merge::remove_fields(view, &whole, &gone.intersection(&before));
    kind.convert_to_version(&result, &kind.api_version).map(|(_, object)| object.into_owned()).unwrap_or(merged)
}

/// The owned fields of all managers by version, a given version first.
fn owned_by_version(managed: &ManagedFields, first: &str) -> Vec<(String, FieldSet)> {
    let mut out: Vec<(String, FieldSet)> = Vec::new();
    for entry in &managed.entries {
        match out.iter_mut().find(|(version, _)| *version == entry.api_version) {
            Some((_, set)) => *set = std::mem::take(set).union(entry.fields.clone()),
            None => out.push((entry.api_version.clone(), entry.fields.clone())),
        }
    }
    out.sort_by_key(|(version, _)| version != first);
    out
}
