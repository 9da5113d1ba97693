//! The protobuf wire format: varints, tags, lengths. Errors have the messages of Go's generated code.

/// A wire format error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The input ends within a field.
    #[error("unexpected EOF")]
    End,
    /// An invalid tag.
    #[error("proto: {message}: illegal tag {number} (wire type {wire})")]
    Tag {
        /// The message type; empty until known.
        message: String,
        /// The field number in the tag.
        number: i32,
        /// The wire type in the tag.
        wire: u8,
    },
    /// An end-group tag without a start.
    #[error("proto: {message}: wiretype end group for non-group")]
    EndGroup {
        /// The message type; empty until known.
        message: String,
    },
    /// An invalid wire type.
    #[error("proto: illegal wireType {0}")]
    NoWireType(u8),
    /// An invalid length.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A varint of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
}

impl WireError {
    /// Sets the message type of the error.
    pub fn with_type(mut self, name: &str) -> Self {
        if let WireError::Tag { message, .. } | WireError::EndGroup { message } = &mut self
            && message.is_empty()
        {
            name.clone_into(message);
        }
        self
    }
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint field.
#[inline]
pub fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value);
}

/// Appends a double field.
pub fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a bytes or string field.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_length(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends the tag and length of a length-delimited field, whose bytes must follow.
#[inline]
pub fn put_length(out: &mut Vec<u8>, field: u32, length: usize) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length as u64);
}

/// Appends a message field; `write` appends the message's fields.
#[inline]
pub fn put_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, u64::from(field) << 3 | 2);
    // Most messages are short: one byte is reserved for the length, and longer messages are moved.
    let at = out.len();
    out.push(0);
    write(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    put_varint(&mut prefix, length as u64);
    out.splice(at..=at, prefix);
}

/// A field value, by wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WireValue<'a> {
    /// Integers and booleans.
    Varint(u64),
    /// Doubles.
    Fixed64(u64),
    /// 32-bit values, which Kubernetes does not use.
    Fixed32,
    /// Strings, bytes and messages.
    Bytes(&'a [u8]),
    /// A deprecated group, which is skipped.
    Group,
    /// An invalid wire type.
    Illegal(u8),
}

impl WireValue<'_> {
    /// Returns the wire type number.
    pub fn wire_type(self) -> u8 {
        match self {
            WireValue::Varint(_) => 0,
            WireValue::Fixed64(_) => 1,
            WireValue::Bytes(_) => 2,
            WireValue::Group => 3,
            WireValue::Fixed32 => 5,
            WireValue::Illegal(kind) => kind,
        }
    }
}

/// Reads the fields of a message in order.
pub struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    /// Starts at the beginning of a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field; `None` at the end.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<(u32, WireValue<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.read_varint()?;
        let (number, wire) = ((tag >> 3) as i32, (tag & 7) as u8);
        if wire == 4 {
            return Err(WireError::EndGroup { message: String::new() });
        }
        if number <= 0 {
            return Err(WireError::Tag { message: String::new(), number, wire });
        }
        Ok(Some((number.unsigned_abs(), self.read_value(tag)?)))
    }

    /// Whether all input is consumed.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn read_value(&mut self, tag: u64) -> Result<WireValue<'a>, WireError> {
        Ok(match tag & 7 {
            0 => WireValue::Varint(self.read_varint()?),
            1 => WireValue::Fixed64(self.read_fixed64()?),
            2 => {
                let length = i64::try_from(self.read_varint()?).map_err(|_| WireError::Length)?;
                let length = usize::try_from(length).map_err(|_| WireError::Length)?;
                WireValue::Bytes(self.take_bytes(length)?)
            }
            3 => {
                self.skip_group()?;
                WireValue::Group
            }
            5 => {
                self.take_bytes(4)?;
                WireValue::Fixed32
            }
            other => WireValue::Illegal(other as u8),
        })
    }

    /// Skips to the end of a group, including nested groups.
    fn skip_group(&mut self) -> Result<(), WireError> {
        let mut open = 1usize;
        while open > 0 {
            let tag = self.read_varint()?;
            match tag & 7 {
                3 => open += 1,
                4 => open -= 1,
                _ => {
                    if let WireValue::Illegal(kind) = self.read_value(tag)? {
                        return Err(WireError::NoWireType(kind));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a varint.
    #[inline]
    pub fn read_varint(&mut self) -> Result<u64, WireError> {
        // Most tags and lengths take one byte.
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.read_long_varint()
    }

    fn read_long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(WireError::End)?;
            self.rest = rest;
            if shift == 63 && *byte > 1 {
                return Err(WireError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    /// Reads eight bytes in little-endian order.
    pub fn read_fixed64(&mut self) -> Result<u64, WireError> {
        let bytes = self.take_bytes(8)?;
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(value))
    }

    #[inline]
    fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::End)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        let mut out = Vec::new();
        put_number(&mut out, 1, u64::MAX);
        put_double(&mut out, 2, 1.5);
        put_message(&mut out, 300, |out| put_bytes(out, 1, &[7; 200]));
        let mut reader = WireReader::new(&out);
        assert_eq!(reader.next_field(), Ok(Some((1, WireValue::Varint(u64::MAX)))));
        assert_eq!(reader.next_field(), Ok(Some((2, WireValue::Fixed64(1.5f64.to_bits())))));
        let Ok(Some((300, WireValue::Bytes(inner)))) = reader.next_field() else { panic!("a message") };
        assert_eq!(WireReader::new(inner).next_field(), Ok(Some((1, WireValue::Bytes(&[7; 200])))));
        assert_eq!(reader.next_field(), Ok(None));
    }

    #[test]
    fn invalid_tags_and_varints_are_rejected() {
        assert_eq!(
            WireReader::new(&[0]).next_field(),
            Err(WireError::Tag { message: String::new(), number: 0, wire: 0 })
        );
        assert_eq!(WireReader::new(&[0x0c]).next_field(), Err(WireError::EndGroup { message: String::new() }));
        assert_eq!(WireReader::new(&[0x0f]).next_field(), Ok(Some((1, WireValue::Illegal(7)))));
        assert_eq!(WireReader::new(&[0x08, 0x80]).next_field(), Err(WireError::End));
        assert_eq!(WireReader::new(&[0xff; 11]).next_field(), Err(WireError::Overflow));
        assert_eq!(WireReader::new(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f]).next_field(), Err(WireError::End));
        assert_eq!(WireReader::new(&[0x0b]).next_field(), Err(WireError::End));
    }
}
