//! A hash index of the fields of a struct by name; decoding spends most of its lookups here.

use super::StructField;

/// An open-addressing hash table from field name to position.
#[derive(Debug)]
pub struct FieldIndex {
    /// Positions plus one; zero is free. The length is a power of two, at most half full.
    table: Vec<u16>,
}

impl FieldIndex {
    /// Builds the index of fields with distinct names.
    pub fn new(fields: &[StructField]) -> Self {
        let mut index = Self { table: vec![0; (fields.len() * 2).next_power_of_two()] };
        for (position, field) in (1..=u16::MAX).zip(fields) {
            let free = index.probe_slots(field.name).find(|at| index.table[*at] == 0);
            if let Some(at) = free {
                index.table[at] = position;
            }
        }
        index
    }

    /// Returns the position of a name among the fields that the index was built from.
    #[inline]
    pub fn find_position(&self, fields: &[StructField], name: &str) -> Option<usize> {
        for at in self.probe_slots(name) {
            let position = usize::from(self.table[at]).checked_sub(1)?;
            if fields.get(position)?.name == name {
                return Some(position);
            }
        }
        None
    }

    /// The slots where a name may be, in probe order.
    #[inline]
    fn probe_slots(&self, name: &str) -> impl Iterator<Item = usize> + use<> {
        let mask = self.table.len() - 1;
        let start = hash_name(name) as usize;
        (0..=mask).map(move |step| start.wrapping_add(step) & mask)
    }
}

/// Hashes the length and both ends of a name, which distinguishes the fields of one struct.
fn hash_name(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let ends = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(head), Some(tail)) => u64::from_le_bytes(*head) ^ u64::from_le_bytes(*tail).rotate_left(29),
        _ => pack_short_name(bytes),
    };
    (ends ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Packs fewer than eight bytes into an integer.
fn pack_short_name(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(head), Some(tail)) => u64::from(u32::from_le_bytes(*head)) | u64::from(u32::from_le_bytes(*tail)) << 32,
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}
