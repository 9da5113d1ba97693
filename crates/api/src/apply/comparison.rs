//! Compares two objects as field sets.

use super::{
    field_set::{FieldNode, FieldSet},
    path_element::PathElement,
    type_view::{ListKeyError, TypeView, ViewForm},
};
use crate::{Map, Value};

/// The field sets that differ between two objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields only in the second.
    pub added: FieldSet,
    /// Fields in both with different values.
    pub modified: FieldSet,
    /// Fields only in the first.
    pub removed: FieldSet,
}

/// The change of one field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldChange {
    Same,
    Added,
    Modified,
    Removed,
    /// A list item changed between occurring once and several times.
    Regrouped,
}

/// The old and new value of a field; at most one is absent.
type ValuePair<'a> = (Option<&'a Value>, Option<&'a Value>);

impl Comparison {
    /// Compares `old` with `new`.
    pub fn between(view: TypeView, old: &Value, new: &Value) -> Result<Self, ListKeyError> {
        let mut out = Self::default();
        out.compare_values(view, (Some(old), Some(new)))?;
        Ok(out)
    }

    /// Removes fields and their descendants from the comparison.
    pub fn exclude_fields(self, fields: &FieldSet) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }

    /// Compares the descendants of a field into `self` and returns the change of the field itself.
    fn compare_values(&mut self, view: TypeView, (old, new): ValuePair) -> Result<FieldChange, ListKeyError> {
        let view = view.deduced_for([old, new]);
        let own = match (old, new) {
            (None, _) => FieldChange::Added,
            (_, None) => FieldChange::Removed,
            _ => FieldChange::Same,
        };
        // Two empty values are leaves, so that null and {} differ.
        if view.atomic || (is_empty_value(old) && is_empty_value(new)) {
            let differ = own == FieldChange::Same && old != new;
            return Ok(if differ { FieldChange::Modified } else { own });
        }
        match view.form {
            ViewForm::List(..) | ViewForm::Items(_) if old != new => {
                self.compare_items(view, as_items(old), as_items(new))?
            }
            ViewForm::Struct(_) | ViewForm::Map(_) | ViewForm::Fields(_) | ViewForm::Deduced => {
                self.compare_fields(view, as_map(old), as_map(new))?
            }
            _ => {}
        }
        Ok(own)
    }

    fn compare_fields(&mut self, view: TypeView, old: Option<&Map>, new: Option<&Map>) -> Result<(), ListKeyError> {
        let (mut old, mut new) = (old.into_iter().flatten().peekable(), new.into_iter().flatten().peekable());
        loop {
            let name = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) => (*a).min(*b),
                (Some((name, _)), None) | (None, Some((name, _))) => *name,
                (None, None) => return Ok(()),
            };
            let pair = (old.next_if(|(n, _)| *n == name), new.next_if(|(n, _)| *n == name));
            let Some(child) = view.child_view(name) else { continue };
            let mut below = Self::default();
            let change = below.compare_values(child.view, (pair.0.map(|(_, v)| v), pair.1.map(|(_, v)| v)))?;
            if change != FieldChange::Same || !below.is_empty() {
                self.push_change(child.element(name), change, below);
            }
        }
    }

    fn compare_items(&mut self, view: TypeView, old: &[Value], new: &[Value]) -> Result<(), ListKeyError> {
        let side = |items: &'_ [Value], is_new: bool| -> Result<Vec<(PathElement, bool, usize)>, ListKeyError> {
            let element = |(at, item)| Ok((view.item_element(item)?, is_new, at));
            items.iter().enumerate().map(element).collect()
        };
        let mut all = side(old, false)?;
        all.extend(side(new, true)?);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        for same in all.chunk_by(|a, b| a.0 == b.0) {
            let (before, after) = same.split_at(same.partition_point(|(_, is_new, _)| !is_new));
            let mut below = Self::default();
            let change = match (before, after) {
                ([] | [_], [] | [_]) => {
                    let pair = (before.first().map(|item| &old[item.2]), after.first().map(|item| &new[item.2]));
                    below.compare_values(view.item_view(), pair)?
                }
                // Duplicate items count as one value.
                ([_, _, ..], [_, _, ..]) => {
                    let values = |items: &[(PathElement, bool, usize)], of: &[Value]| -> Vec<Value> {
                        items.iter().map(|item| of[item.2].clone()).collect()
                    };
                    if values(before, old) == values(after, new) { FieldChange::Same } else { FieldChange::Modified }
                }
                (_, []) => FieldChange::Removed,
                ([], _) => FieldChange::Added,
                (_, [one]) => {
                    below.compare_values(view.item_view(), (None, Some(&new[one.2])))?;
                    FieldChange::Regrouped
                }
                ([one], _) => {
                    below.compare_values(view.item_view(), (Some(&old[one.2]), None))?;
                    FieldChange::Regrouped
                }
            };
            if change != FieldChange::Same || !below.is_empty() {
                self.push_change(same[0].0.clone(), change, below);
            }
        }
        Ok(())
    }
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Appends a field that sorts after all others.
    fn push_change(&mut self, element: PathElement, change: FieldChange, below: Self) {
        let regrouped = change == FieldChange::Regrouped;
        for (set, member, children) in [
            (&mut self.modified, change == FieldChange::Modified, below.modified),
            (&mut self.removed, change == FieldChange::Removed || regrouped, below.removed),
        ] {
            if member || !children.is_empty() {
                set.push(FieldNode { element: element.clone(), member, children });
            }
        }
        self.added.push(FieldNode {
            element,
            member: change == FieldChange::Added || regrouped,
            children: below.added,
        });
    }
}

/// Whether a value has no entries.
pub(super) fn is_empty_value(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => true,
    }
}

pub(super) fn as_map(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object)
}

pub(super) fn as_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
