//! Finds a field by its name: a small open table per type, as decoding does little else.

use super::Field;

/// Where the fields of a type are, by name.
#[derive(Debug)]
pub struct Index {
    /// Positions plus one; zero is free. A power of two, at most half full.
    table: Vec<u16>,
}

impl Index {
    /// An index of fields, which have different names.
    pub fn new(fields: &[Field]) -> Self {
        let mut index = Self { table: vec![0; (fields.len() * 2).next_power_of_two()] };
        for (position, field) in (1..=u16::MAX).zip(fields) {
            let free = index.probe(field.name).find(|at| index.table[*at] == 0);
            if let Some(at) = free {
                index.table[at] = position;
            }
        }
        index
    }

    /// The position of a name among the fields that the index was made of.
    #[inline]
    pub fn find(&self, fields: &[Field], name: &str) -> Option<usize> {
        for at in self.probe(name) {
            let position = usize::from(self.table[at]).checked_sub(1)?;
            if fields.get(position)?.name == name {
                return Some(position);
            }
        }
        None
    }

    /// The places where a name may be, in order.
    #[inline]
    fn probe(&self, name: &str) -> impl Iterator<Item = usize> + use<> {
        let mask = self.table.len() - 1;
        let start = hash(name) as usize;
        (0..=mask).map(move |step| start.wrapping_add(step) & mask)
    }
}

/// Mixes the length and both ends of a name: enough to tell the fields of one type apart.
fn hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let ends = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(head), Some(tail)) => u64::from_le_bytes(*head) ^ u64::from_le_bytes(*tail).rotate_left(29),
        _ => short(bytes),
    };
    (ends ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Fewer than eight bytes as a number.
fn short(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(head), Some(tail)) => u64::from(u32::from_le_bytes(*head)) | u64::from(u32::from_le_bytes(*tail)) << 32,
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}
