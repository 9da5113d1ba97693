//! Sets, maps and verdict maps: their declaration and their elements.
//!
//! Keys and data are the bytes that registers hold: every part of a concatenation is padded to four bytes.

use super::{
    Verdict,
    expression::{put_value, put_verdict},
};
use crate::netlink::AttributeBuffer;

const NFT_SET_INTERVAL: u32 = 4;
const NFT_SET_MAP: u32 = 8;
const NFT_SET_TIMEOUT: u32 = 0x10;
const NFT_SET_EVAL: u32 = 0x20;
const NFT_SET_CONCAT: u32 = 0x80;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
const NFTA_LIST_ELEM: u16 = 1;
/// The data type of verdicts.
const VERDICT_TYPE: u32 = 0xffff_ff00;
/// Bits of one type in the number of a concatenated type.
const TYPE_BITS: u32 = 6;

/// The type of a part of a key or of data, as `nft` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// `ipv4_addr`.
    Ipv4Address,
    /// `ipv6_addr`.
    Ipv6Address,
    /// `inet_proto`.
    Protocol,
    /// `inet_service`, a port.
    Port,
    /// `mark`, a number in host byte order.
    Mark,
    /// `ifname`, 16 bytes.
    InterfaceName,
}

impl DataType {
    fn number(self) -> u32 {
        match self {
            Self::Ipv4Address => 7,
            Self::Ipv6Address => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Mark => 19,
            Self::InterfaceName => 41,
        }
    }

    /// Bytes in a concatenation, padded.
    fn length(self) -> u32 {
        match self {
            Self::Ipv6Address | Self::InterfaceName => 16,
            _ => 4,
        }
    }

    /// Bytes of the value itself.
    fn value_length(self) -> u32 {
        match self {
            Self::Protocol => 1,
            Self::Port => 2,
            other => other.length(),
        }
    }
}

/// Kind of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Keys alone.
    Set,
    /// Keys with data.
    Map(Vec<DataType>),
    /// Keys with verdicts.
    VerdictMap,
}

/// The declaration of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSpec {
    /// The name.
    pub name: String,
    /// The parts of the key.
    pub key: Vec<DataType>,
    /// Set, map or verdict map.
    pub kind: SetKind,
    /// Elements are ranges.
    pub interval: bool,
    /// Packets add elements, which expire.
    pub dynamic: bool,
}

impl SetSpec {
    /// A set of single keys.
    pub fn new(name: &str, key: &[DataType], kind: SetKind) -> Self {
        Self { name: name.into(), key: key.to_vec(), kind, interval: false, dynamic: false }
    }

    /// The same with ranges as elements.
    pub fn with_intervals(self) -> Self {
        Self { interval: true, ..self }
    }

    /// The same with elements that packets add and that expire.
    pub fn with_dynamic_elements(self) -> Self {
        Self { dynamic: true, ..self }
    }

    pub(super) fn encode(&self, id: u32, out: &mut AttributeBuffer) {
        out.put_text(2, &self.name).put_be32(3, self.flags());
        out.put_be32(4, type_number(&self.key)).put_be32(5, type_length(&self.key));
        match &self.kind {
            SetKind::Set => {}
            SetKind::Map(data) => {
                out.put_be32(6, type_number(data)).put_be32(7, type_length(data));
            }
            SetKind::VerdictMap => {
                out.put_be32(6, VERDICT_TYPE);
            }
        }
        out.put_be32(10, id);
        if self.interval && self.key.len() > 1 {
            // The fields of the key, which ranges of concatenations need.
            out.nest(9, |description| {
                description.nest(2, |fields| {
                    for part in &self.key {
                        fields.nest(NFTA_LIST_ELEM, |field| {
                            field.put_be32(1, part.value_length());
                        });
                    }
                });
            });
        }
    }

    fn flags(&self) -> u32 {
        let map = if self.kind == SetKind::Set { 0 } else { NFT_SET_MAP };
        let dynamic = if self.dynamic { NFT_SET_TIMEOUT | NFT_SET_EVAL } else { 0 };
        let interval = match (self.interval, self.key.len()) {
            (false, _) => 0,
            (true, 1) => NFT_SET_INTERVAL,
            (true, _) => NFT_SET_INTERVAL | NFT_SET_CONCAT,
        };
        map | dynamic | interval
    }
}

fn type_number(parts: &[DataType]) -> u32 {
    parts.iter().fold(0, |number, part| number << TYPE_BITS | part.number())
}

fn type_length(parts: &[DataType]) -> u32 {
    match parts {
        [one] => one.value_length(),
        parts => parts.iter().map(|part| part.length()).sum(),
    }
}

/// The data of an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementData {
    /// Bytes, in maps.
    Value(Vec<u8>),
    /// A verdict, in verdict maps.
    Verdict(Verdict),
}

/// An element of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetElement {
    /// The key, or the first key of a range.
    pub key: Vec<u8>,
    /// The last key of a range in a concatenation.
    pub key_end: Option<Vec<u8>>,
    /// The element is the first key behind a range, in sets with keys of one part.
    pub interval_end: bool,
    /// The data.
    pub data: Option<ElementData>,
}

impl SetElement {
    /// A key.
    pub fn key(key: Vec<u8>) -> Self {
        Self { key, key_end: None, interval_end: false, data: None }
    }

    /// A key with data.
    pub fn value(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { data: Some(ElementData::Value(value)), ..Self::key(key) }
    }

    /// A key with a verdict.
    pub fn verdict(key: Vec<u8>, verdict: Verdict) -> Self {
        Self { data: Some(ElementData::Verdict(verdict)), ..Self::key(key) }
    }

    /// A range of concatenated keys.
    pub fn concatenated_range(first: Vec<u8>, last: Vec<u8>) -> Self {
        Self { key_end: Some(last), ..Self::key(first) }
    }

    /// A range of keys of one part: its first key, and the key behind its last unless the range goes to the end.
    pub fn range(first: Vec<u8>, last: &[u8]) -> Vec<Self> {
        let mut elements = vec![Self::key(first)];
        elements.extend(next_key(last).map(|end| Self { interval_end: true, ..Self::key(end) }));
        elements
    }

    pub(super) fn encode(&self, out: &mut AttributeBuffer) {
        out.nest(NFTA_LIST_ELEM, |element| {
            if self.interval_end {
                element.put_be32(3, NFT_SET_ELEM_INTERVAL_END);
            }
            element.nest(1, |key| put_value(key, &self.key));
            if let Some(end) = &self.key_end {
                element.nest(10, |key| put_value(key, end));
            }
            match &self.data {
                Some(ElementData::Value(value)) => {
                    element.nest(2, |data| put_value(data, value));
                }
                Some(ElementData::Verdict(verdict)) => {
                    element.nest(2, |data| put_verdict(data, verdict));
                }
                None => {}
            }
        });
    }
}

/// The next number of a big-endian key; `None` behind the last.
fn next_key(key: &[u8]) -> Option<Vec<u8>> {
    let mut next = key.to_vec();
    for byte in next.iter_mut().rev() {
        let (sum, overflow) = byte.overflowing_add(1);
        *byte = sum;
        if !overflow {
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_to_the_last_address_has_no_end() {
        let ends = |last: &[u8]| SetElement::range(vec![0; 4], last).get(1).map(|end| end.key.clone());
        assert_eq!(ends(&[10, 255, 255, 255]), Some(vec![11, 0, 0, 0]));
        assert_eq!(ends(&[255; 4]), None);
    }

    #[test]
    fn types_are_numbered_as_nft_does() {
        assert_eq!(type_number(&[DataType::Ipv4Address, DataType::Protocol, DataType::Port]), 7 << 12 | 12 << 6 | 13);
        assert_eq!(type_length(&[DataType::Protocol]), 1);
        assert_eq!(type_length(&[DataType::Ipv6Address, DataType::Port]), 20);
    }
}
