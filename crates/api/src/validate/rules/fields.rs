//! The fields that a block of rules looks at, so that a struct is gone through once, not once per rule.

use super::At;
use crate::Value;

/// How many fields of a struct are found at once; rules about more look them up themselves.
const MOST: usize = 48;

static NOTHING: Value = Value::Null;

/// Names of fields; a number made of the beginning and the length of each tells nearly all of them apart.
#[derive(Default)]
pub(super) struct Fields {
    heads: Vec<u64>,
    names: Vec<&'static str>,
}

/// The values of fields, in the order of their names.
pub(super) type Values<'v> = [&'v Value];

impl Fields {
    /// The fields with these names; of one or two it is less work to look them up.
    pub fn new(names: impl Iterator<Item = &'static str>) -> Self {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(if names.len() < 3 { 0 } else { MOST });
        Self { heads: names.iter().map(|name| head(name)).collect(), names }
    }

    /// Where the value of a field is.
    pub fn position(&self, name: &str) -> Option<usize> {
        let head = head(name);
        let mut heads = self.heads.iter().enumerate();
        heads.find(|(at, known)| **known == head && self.names[*at] == name).map(|(at, _)| at)
    }

    /// Finds the values of the fields of a struct, and hands them on; nothing where there is none.
    pub fn find<'v>(&self, at: &At<'v, '_>, then: impl FnOnce(&Values<'v>)) {
        if self.names.is_empty() {
            return then(&[]);
        }
        let mut found = [&NOTHING; MOST];
        match at.value.as_object() {
            // A great map is one of names that clients give.
            Some(map) if map.len() > 2 * MOST => {
                for (found, name) in found.iter_mut().zip(&self.names) {
                    *found = map.get(*name).unwrap_or(&NOTHING);
                }
            }
            Some(map) => {
                for (name, value) in map {
                    if let Some(position) = self.position(name) {
                        found[position] = value;
                    }
                }
            }
            None => {}
        }
        then(&found);
    }
}

/// The first eight bytes of a name and its length, as a number.
fn head(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let number = match bytes.first_chunk::<8>() {
        Some(first) => u64::from_le_bytes(*first),
        None => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    number ^ (bytes.len() as u64).rotate_right(8)
}
