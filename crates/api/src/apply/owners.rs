//! Who owns what after a change: the rules by which a write takes fields from their owners, or is refused.

use super::{
    compare::Comparison,
    conflict::{ApplyError, FieldConflict},
    fields,
    kind::Kind,
    managed::{ManagedFields, ManagedFieldsEntry},
    merge,
    set::Set,
    view::ListKeyError,
};
use crate::Value;

/// Takes what differs between two objects from everybody but `me`, and returns the difference in the version of the path.
/// Unless it is forced, nothing that has an owner may differ.
pub fn take(
    kind: &Kind,
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
            in_version(kind, (old, new), &entry.api_version, &mut others)?
        };
        // Who names fields in a version that is gone owns nothing any more.
        let Some(difference) = difference else { continue };
        let conflict = changed(&entry.fields, difference);
        if !conflict.is_empty() {
            entry.fields = std::mem::take(&mut entry.fields).difference(&conflict);
            if !force {
                let owner = ManagedFieldsEntry { fields: Set::default(), ..entry.clone() };
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

/// What of a set is new or has another value.
fn changed(set: &Set, difference: &Comparison) -> Set {
    set.intersection(&difference.modified).union(set.intersection(&difference.added))
}

/// The difference in another version, worked out once.
fn in_version<'c>(
    kind: &Kind,
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

/// Brings what is owned in line with what is atomic now; who names fields in a version that is gone is forgotten.
pub fn reconcile(kind: &Kind, managed: &mut ManagedFields) {
    managed.entries.retain_mut(|entry| {
        let Some(view) = kind.type_view_in(&entry.api_version) else { return false };
        fields::reconcile_with_schema(view, &mut entry.fields);
        true
    });
}

/// Removes what the applier owned before, does not apply any more, and nobody else owns.
pub fn prune(
    kind: &Kind,
    merged: Value,
    managed: &ManagedFields,
    mine: &ManagedFieldsEntry,
    last: Option<&ManagedFieldsEntry>,
) -> Value {
    let abandoned =
        |last: &&ManagedFieldsEntry| last.api_version != mine.api_version || !last.fields.is_in(&mine.fields);
    let Some(last) = last.filter(abandoned) else { return merged };
    let Some((view, whole)) = kind.convert_to_version(&merged, &last.api_version) else { return merged };
    let before = fields::ensure_named_fields(Some(view), &last.fields);
    let mut pruned = merge::without(view, &whole, &before);
    for (version, owned) in owned_by_version(managed, &last.api_version) {
        let (Some((view, whole)), Some((_, rest))) =
            (kind.convert_to_version(&merged, &version), kind.convert_to_version(&pruned, &version))
        else {
            continue;
        };
        let named = |set: &Set| fields::ensure_named_fields(Some(view), set);
        let keep = named(&fields::to_field_set(view, &rest)).union(named(&owned));
        let gone = named(&fields::to_field_set(view, &whole)).difference(&keep);
        pruned = merge::without(view, &whole, &gone);
    }
    let Some((_, rest)) = kind.convert_to_version(&pruned, &last.api_version) else { return merged };
    let named = |set: &Set| fields::ensure_named_fields(Some(view), set);
    let gone = named(&fields::to_field_set(view, &whole)).difference(&named(&fields::to_field_set(view, &rest)));
    let result = merge::without(view, &whole, &gone.intersection(&before));
    kind.convert_to_version(&result, &kind.api_version).map(|(_, object)| object.into_owned()).unwrap_or(merged)
}

/// What anybody owns, by the version in which it is named, a given one first.
fn owned_by_version(managed: &ManagedFields, first: &str) -> Vec<(String, Set)> {
    let mut out: Vec<(String, Set)> = Vec::new();
    for entry in &managed.entries {
        match out.iter_mut().find(|(version, _)| *version == entry.api_version) {
            Some((_, set)) => *set = std::mem::take(set).union(entry.fields.clone()),
            None => out.push((entry.api_version.clone(), entry.fields.clone())),
        }
    }
    out.sort_by_key(|(version, _)| version != first);
    out
}
