//! The difference between two objects, as sets of fields.

use super::{
    element::Element,
    set::{Node, Set},
    view::{Form, NoKey, View},
};
use crate::{Map, Value};

/// What one object has and another has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// In the second only.
    pub added: Set,
    /// In both, with other values.
    pub modified: Set,
    /// In the first only.
    pub removed: Set,
}

/// What became of one field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Same,
    Added,
    Modified,
    Removed,
    /// A list item was there once and is there more often now, or the other way round.
    Regrouped,
}

/// Two values of a field; at most one is absent.
type Pair<'a> = (Option<&'a Value>, Option<&'a Value>);

impl Comparison {
    /// Compares two objects.
    pub fn of(view: View, old: &Value, new: &Value) -> Result<Self, NoKey> {
        let mut out = Self::default();
        out.walk(view, (Some(old), Some(new)))?;
        Ok(out)
    }

    /// The comparison without some fields and all below them.
    pub fn without(self, fields: &Set) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }

    /// Compares what is below a field into `self`, and says what became of the field.
    fn walk(&mut self, view: View, (old, new): Pair) -> Result<Change, NoKey> {
        let view = view.settled([old, new]);
        let own = match (old, new) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Same,
        };
        // Two that are empty are leaves, so that null and {} are not the same.
        if view.atomic || (is_empty(old) && is_empty(new)) {
            let differ = own == Change::Same && old != new;
            return Ok(if differ { Change::Modified } else { own });
        }
        match view.form {
            Form::List(..) | Form::Items(_) if old != new => self.items(view, array(old), array(new))?,
            Form::Struct(_) | Form::Map(_) | Form::Fields(_) | Form::Deduced => {
                self.fields(view, object(old), object(new))?
            }
            _ => {}
        }
        Ok(own)
    }

    fn fields(&mut self, view: View, old: Option<&Map>, new: Option<&Map>) -> Result<(), NoKey> {
        let (mut old, mut new) = (old.into_iter().flatten().peekable(), new.into_iter().flatten().peekable());
        loop {
            let name = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) => (*a).min(*b),
                (Some((name, _)), None) | (None, Some((name, _))) => *name,
                (None, None) => return Ok(()),
            };
            let pair = (old.next_if(|(n, _)| *n == name), new.next_if(|(n, _)| *n == name));
            let Some(child) = view.child(name) else { continue };
            let mut below = Self::default();
            let change = below.walk(child.view, (pair.0.map(|(_, v)| v), pair.1.map(|(_, v)| v)))?;
            if change != Change::Same || !below.is_empty() {
                self.push(child.element(name), change, below);
            }
        }
    }

    fn items(&mut self, view: View, old: &[Value], new: &[Value]) -> Result<(), NoKey> {
        let side = |items: &'_ [Value], is_new: bool| -> Result<Vec<(Element, bool, usize)>, NoKey> {
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
                    below.walk(view.item(), pair)?
                }
                // An item that is there more than once is one value.
                ([_, _, ..], [_, _, ..]) => {
                    let values = |items: &[(Element, bool, usize)], of: &[Value]| -> Vec<Value> {
                        items.iter().map(|item| of[item.2].clone()).collect()
                    };
                    if values(before, old) == values(after, new) { Change::Same } else { Change::Modified }
                }
                (_, []) => Change::Removed,
                ([], _) => Change::Added,
                (_, [one]) => {
                    below.walk(view.item(), (None, Some(&new[one.2])))?;
                    Change::Regrouped
                }
                ([one], _) => {
                    below.walk(view.item(), (Some(&old[one.2]), None))?;
                    Change::Regrouped
                }
            };
            if change != Change::Same || !below.is_empty() {
                self.push(same[0].0.clone(), change, below);
            }
        }
        Ok(())
    }
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Adds a field that sorts after all others.
    fn push(&mut self, element: Element, change: Change, below: Self) {
        let regrouped = change == Change::Regrouped;
        for (set, member, children) in [
            (&mut self.modified, change == Change::Modified, below.modified),
            (&mut self.removed, change == Change::Removed || regrouped, below.removed),
        ] {
            if member || !children.is_empty() {
                set.push(Node { element: element.clone(), member, children });
            }
        }
        self.added.push(Node { element, member: change == Change::Added || regrouped, children: below.added });
    }
}

/// Whether there is nothing in a value.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => true,
    }
}

pub(super) fn object(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object)
}

pub(super) fn array(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
