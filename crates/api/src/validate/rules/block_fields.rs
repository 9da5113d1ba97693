//! The fields that a rule block reads, collected in one pass over a struct.

use super::FieldCursor;
use crate::Value;

/// The maximum number of fields collected at once; rules look up further ones themselves.
const MAX_FIELDS: usize = 48;

static NULL: Value = Value::Null;

/// Field names with a hash of beginning and length, which distinguishes nearly all.
#[derive(Default)]
pub(super) struct BlockFields {
    heads: Vec<u64>,
    names: Vec<&'static str>,
}

/// The values of fields, in the order of their names.
pub(super) type FieldValues<'v> = [&'v Value];

impl BlockFields {
    /// Collects field names; one or two are cheaper to look up.
    pub fn new(names: impl Iterator<Item = &'static str>) -> Self {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(if names.len() < 3 { 0 } else { MAX_FIELDS });
        Self { heads: names.iter().map(|name| name_head(name)).collect(), names }
    }

    /// The position of a field's value.
    pub fn field_position(&self, name: &str) -> Option<usize> {
        let head = name_head(name);
        let mut heads = self.heads.iter().enumerate();
        heads.find(|(at, known)| **known == head && self.names[*at] == name).map(|(at, _)| at)
    }

    /// Calls `then` with the values of the fields of a struct; null if absent.
    pub fn with_values<'v>(&self, at: &FieldCursor<'v, '_>, then: impl FnOnce(&FieldValues<'v>)) {
        if self.names.is_empty() {
            return then(&[]);
        }
        let mut found = [&NULL; MAX_FIELDS];
        match at.value.as_object() {
            // A large map has user-defined keys.
            Some(map) if map.len() > 2 * MAX_FIELDS => {
                for (found, name) in found.iter_mut().zip(&self.names) {
                    *found = map.get(*name).unwrap_or(&NULL);
                }
            }
            Some(map) => {
                for (name, value) in map {
                    if let Some(position) = self.field_position(name) {
                        found[position] = value;
                    }
                }
            }
            None => {}
        }
        then(&found);
    }
}

/// Packs the first eight bytes of a name and its length into an integer.
fn name_head(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let number = match bytes.first_chunk::<8>() {
        Some(first) => u64::from_le_bytes(*first),
        None => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    number ^ (bytes.len() as u64).rotate_right(8)
}
