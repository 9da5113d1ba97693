//! Netlink attributes: an encoder with nesting, and a parser.

use std::io;

use super::{align_length, malformed_error};

/// The flag of an attribute that holds attributes.
const NLA_F_NESTED: u16 = 0x8000;

/// A message body under construction: a family header, then attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeBuffer {
    bytes: Vec<u8>,
}

impl AttributeBuffer {
    /// Starts a body with a family header.
    pub fn with_header(header: &[u8]) -> Self {
        Self { bytes: header.to_vec() }
    }

    /// Adds an attribute. A payload over 64 KiB cannot be expressed; callers split lists before.
    pub fn put(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        debug_assert!(payload.len() <= usize::from(u16::MAX) - 4);
        self.bytes.extend(((payload.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(payload);
        self.pad()
    }

    /// Adds bytes without an attribute header.
    pub fn put_raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self.pad()
    }

    /// Adds a number in host byte order.
    pub fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a number in network byte order.
    pub fn put_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Adds a 64-bit number in network byte order.
    pub fn put_be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Adds a text with its terminating zero.
    pub fn put_text(&mut self, kind: u16, text: &str) -> &mut Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Adds an attribute whose payload is the attributes that `fill` adds.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend((kind | NLA_F_NESTED).to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        if let Some(field) = self.bytes.get_mut(start..start + 2) {
            field.copy_from_slice(&length.to_ne_bytes());
        }
        self
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn pad(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// Parses the attributes after a family header of `skip` bytes: type and payload.
pub(crate) fn parse_attributes(message: &[u8], skip: usize) -> io::Result<Vec<(u16, &[u8])>> {
    let mut rest = message.get(skip..).ok_or_else(malformed_error)?;
    let mut found = Vec::new();
    while rest.len() >= 4 {
        let length = read_u16(rest, 0)? as usize;
        // The two top bits are flags.
        let kind = read_u16(rest, 2)? & 0x3fff;
        found.push((kind, rest.get(4..length).ok_or_else(malformed_error)?));
        rest = rest.get(align_length(length)..).unwrap_or_default();
    }
    Ok(found)
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> io::Result<u16> {
    read_array(bytes, at).map(u16::from_ne_bytes)
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> io::Result<u32> {
    read_array(bytes, at).map(u32::from_ne_bytes)
}

/// Reads a text that ends at its zero byte or with the payload.
pub(crate) fn read_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

fn read_array<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    bytes.get(at..at + N).and_then(|field| field.try_into().ok()).ok_or_else(malformed_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_with_invalid_length_is_an_error() {
        assert!(parse_attributes(&[200, 0, 3, 0, 1, 2, 3, 4], 0).is_err());
        assert!(parse_attributes(&[0, 0, 3, 0], 0).is_err());
        assert_eq!(parse_attributes(&[6, 0, 3, 0, 1, 2, 0, 0], 0).unwrap(), [(3, &[1, 2][..])]);
    }

    #[test]
    fn nested_attributes_are_read_back() {
        let mut buffer = AttributeBuffer::with_header(&[9; 4]);
        buffer.put_text(1, "abc").nest(2, |inner| {
            inner.put_be32(1, 7).put(3, &[1]);
        });
        let outer = parse_attributes(buffer.as_bytes(), 4).unwrap();
        assert_eq!((outer[0].0, read_text(outer[0].1).as_str()), (1, "abc"));
        let inner = parse_attributes(outer[1].1, 0).unwrap();
        assert_eq!((outer[1].0, inner[0].1, inner[1]), (2, &[0, 0, 0, 7][..], (3, &[1][..])));
    }
}
