//! Who owns what after a change: the rules by which a write takes fields from their owners, or is refused.

use super::{
    compare::Comparison,
    conflict::{Conflict, Error},
    fields,
    kind::Kind,
    managed::{Entry, Managed},
    merge,
    set::Set,
    view::NoKey,
};
use crate::Value;

/// Takes what differs between two objects from everybody but `me`, and returns the difference in the version of the path.
/// Unless it is forced, nothing that has an owner may differ.
pub fn take(
    kind: &Kind,
    (old, new): (&Value, &Value),
    managed: &mut Managed,
    me: Option<&Entry>,
    force: bool,
) -> Result<Comparison, Error> {
    let own = Comparison::of(kind.view(), old, new)?.without(&kind.reset);
    let mut others: Vec<(String, Option<Comparison>)> = Vec::new();
    let mut conflicts = Vec::new();
    let mut kept = Vec::with_capacity(managed.entries.len());
    for mut entry in managed.entries.drain(..) {
        if me.is_some_and(|me| me.is_same(&entry)) {
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
        let conflict = changed(&entry.set, difference);
        if !conflict.is_empty() {
            entry.set = std::mem::take(&mut entry.set).difference(&conflict);
            if !force {
                let owner = Entry { set: Set::default(), ..entry.clone() };
                conflicts.extend(conflict.paths().into_iter().map(|path| Conflict { owner: owner.clone(), path }));
            }
        }
        if !difference.removed.is_empty() {
            entry.set = std::mem::take(&mut entry.set).difference(&difference.removed);
        }
        kept.push(entry);
    }
    if !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.owner.identity_order(&b.owner));
        return Err(Error::Conflicts(conflicts));
    }
    kept.retain(|entry| !entry.set.is_empty());
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
) -> Result<Option<&'c Comparison>, NoKey> {
    let at = match known.iter().position(|(name, _)| name == version) {
        Some(at) => at,
        None => {
            let difference = match (kind.convert(old, version), kind.convert(new, version)) {
                (Some((view, old)), Some((_, new))) => Some(Comparison::of(view, &old, &new)?.without(&kind.reset)),
                _ => None,
            };
            known.push((version.to_owned(), difference));
            known.len() - 1
        }
    };
    Ok(known[at].1.as_ref())
}

/// Brings what is owned in line with what is atomic now; who names fields in a version that is gone is forgotten.
pub fn reconcile(kind: &Kind, managed: &mut Managed) {
    managed.entries.retain_mut(|entry| {
        let Some(view) = kind.view_in(&entry.api_version) else { return false };
        fields::reconcile(view, &mut entry.set);
        true
    });
}

/// Removes what the applier owned before, does not apply any more, and nobody else owns.
pub fn prune(kind: &Kind, merged: Value, managed: &Managed, mine: &Entry, last: Option<&Entry>) -> Value {
    let abandoned = |last: &&Entry| last.api_version != mine.api_version || !last.set.is_in(&mine.set);
    let Some(last) = last.filter(abandoned) else { return merged };
    let Some((view, whole)) = kind.convert(&merged, &last.api_version) else { return merged };
    let before = fields::with_named(Some(view), &last.set);
    let mut pruned = merge::without(view, &whole, &before);
    for (version, owned) in owned_by_version(managed, &last.api_version) {
        let (Some((view, whole)), Some((_, rest))) = (kind.convert(&merged, &version), kind.convert(&pruned, &version))
        else {
            continue;
        };
        let named = |set: &Set| fields::with_named(Some(view), set);
        let keep = named(&fields::of_object(view, &rest)).union(named(&owned));
        let gone = named(&fields::of_object(view, &whole)).difference(&keep);
        pruned = merge::without(view, &whole, &gone);
    }
    let Some((_, rest)) = kind.convert(&pruned, &last.api_version) else { return merged };
    let named = |set: &Set| fields::with_named(Some(view), set);
    let gone = named(&fields::of_object(view, &whole)).difference(&named(&fields::of_object(view, &rest)));
    let result = merge::without(view, &whole, &gone.intersection(&before));
    kind.convert(&result, &kind.api_version).map(|(_, object)| object.into_owned()).unwrap_or(merged)
}

/// What anybody owns, by the version in which it is named, a given one first.
fn owned_by_version(managed: &Managed, first: &str) -> Vec<(String, Set)> {
    let mut out: Vec<(String, Set)> = Vec::new();
    for entry in &managed.entries {
        match out.iter_mut().find(|(version, _)| *version == entry.api_version) {
            Some((_, set)) => *set = std::mem::take(set).union(entry.set.clone()),
            None => out.push((entry.api_version.clone(), entry.set.clone())),
        }
    }
    out.sort_by_key(|(version, _)| version != first);
    out
}
