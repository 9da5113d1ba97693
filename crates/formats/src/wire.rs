//! The protobuf wire format: varints, tags, lengths. Errors have the messages of Go's generated code.

/// A wire format error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
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

impl Error {
    /// Sets the message type of the error.
    pub fn within(mut self, name: &str) -> Self {
        if let Error::Tag { message, .. } | Error::EndGroup { message } = &mut self
            && message.is_empty()
        {
            name.clone_into(message);
        }
        self
    }
}

/// Appends a varint.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint field.
#[inline]
pub fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// Appends a double field.
pub fn double(out: &mut Vec<u8>, field: u32, value: f64) {
    varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a bytes or string field.
#[inline]
pub fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    announce(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends the tag and length of a length-delimited field, whose bytes must follow.
#[inline]
pub fn announce(out: &mut Vec<u8>, field: u32, length: usize) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, length as u64);
}

/// Appends a message field; `write` appends the message's fields.
#[inline]
pub fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(field) << 3 | 2);
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
    varint(&mut prefix, length as u64);
    out.splice(at..=at, prefix);
}

/// A field value, by wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire<'a> {
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

impl Wire<'_> {
    /// Returns the wire type number.
    pub fn kind(self) -> u8 {
        match self {
            Wire::Varint(_) => 0,
            Wire::Fixed64(_) => 1,
            Wire::Bytes(_) => 2,
            Wire::Group => 3,
            Wire::Fixed32 => 5,
            Wire::Illegal(kind) => kind,
        }
    }
}

/// Reads the fields of a message in order.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field; `None` at the end.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire) = ((tag >> 3) as i32, (tag & 7) as u8);
        if wire == 4 {
            return Err(Error::EndGroup { message: String::new() });
        }
        if number <= 0 {
            return Err(Error::Tag { message: String::new(), number, wire });
        }
        Ok(Some((number.unsigned_abs(), self.value(tag)?)))
    }

    /// Whether all input is consumed.
    pub fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn value(&mut self, tag: u64) -> Result<Wire<'a>, Error> {
        Ok(match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(self.fixed64()?),
            2 => {
                let length = i64::try_from(self.varint()?).map_err(|_| Error::Length)?;
                let length = usize::try_from(length).map_err(|_| Error::Length)?;
                Wire::Bytes(self.take(length)?)
            }
            3 => {
                self.skip_group()?;
                Wire::Group
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => Wire::Illegal(other as u8),
        })
    }

    /// Skips to the end of a group, including nested groups.
    fn skip_group(&mut self) -> Result<(), Error> {
        let mut open = 1usize;
        while open > 0 {
            let tag = self.varint()?;
            match tag & 7 {
                3 => open += 1,
                4 => open -= 1,
                _ => {
                    if let Wire::Illegal(kind) = self.value(tag)? {
                        return Err(Error::NoWireType(kind));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Error> {
        // Most tags and lengths take one byte.
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Error::End)?;
            self.rest = rest;
            if shift == 63 && *byte > 1 {
                return Err(Error::Overflow);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Overflow)
    }

    /// Reads eight bytes in little-endian order.
    pub fn fixed64(&mut self) -> Result<u64, Error> {
        let bytes = self.take(8)?;
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(value))
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::End)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_written() {
        let mut out = Vec::new();
        number(&mut out, 1, u64::MAX);
        double(&mut out, 2, 1.5);
        message(&mut out, 300, |out| bytes(out, 1, &[7; 200]));
        let mut reader = Reader::new(&out);
        assert_eq!(reader.field(), Ok(Some((1, Wire::Varint(u64::MAX)))));
        assert_eq!(reader.field(), Ok(Some((2, Wire::Fixed64(1.5f64.to_bits())))));
        let Ok(Some((300, Wire::Bytes(inner)))) = reader.field() else { panic!("a message") };
        assert_eq!(Reader::new(inner).field(), Ok(Some((1, Wire::Bytes(&[7; 200])))));
        assert_eq!(reader.field(), Ok(None));
    }

    #[test]
    fn impossible_tags_and_numbers_are_refused() {
        assert_eq!(Reader::new(&[0]).field(), Err(Error::Tag { message: String::new(), number: 0, wire: 0 }));
        assert_eq!(Reader::new(&[0x0c]).field(), Err(Error::EndGroup { message: String::new() }));
        assert_eq!(Reader::new(&[0x0f]).field(), Ok(Some((1, Wire::Illegal(7)))));
        assert_eq!(Reader::new(&[0x08, 0x80]).field(), Err(Error::End));
        assert_eq!(Reader::new(&[0xff; 11]).field(), Err(Error::Overflow));
        assert_eq!(Reader::new(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f]).field(), Err(Error::End));
        assert_eq!(Reader::new(&[0x0b]).field(), Err(Error::End));
    }
}
