//! The JSON scanner: finds the ends of strings, numbers and values, and reports syntax errors with Go's messages.
//!
//! Every JSON reader advances a [`JsonScanner`] along a document; it neither copies nor recurses.

use super::JsonError;

/// Go's nesting limit; deeper documents are syntax errors.
const MAX_DEPTH: usize = 10_000;

/// A syntax error at the scanner's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxError {
    /// Unexpected end of input.
    End,
    /// An invalid character; the text is the context in Go's message.
    At(&'static str),
    /// An invalid character in a literal: the literal, and the expected byte.
    Literal(&'static str, u8),
}

/// The byte range of a string, without its quotes.
#[derive(Clone, Copy, Debug)]
pub struct QuotedRange {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
    /// Number of escapes. A count instead of a `bool`, because a struct without padding is returned with fewer, aligned
    /// moves.
    pub escapes: usize,
}

/// Checks whether Go accepts bytes as JSON.
pub fn validate_syntax(bytes: &[u8]) -> Result<(), JsonError> {
    let mut scan = JsonScanner { bytes, at: 0 };
    scan.skip_value().and_then(|()| scan.expect_end()).map_err(|fault| {
        let here = || quote_byte(bytes[scan.at]);
        JsonError::Syntax(match fault {
            SyntaxError::End => "unexpected end of JSON input".to_owned(),
            SyntaxError::At(context) => format!("invalid character {} {context}", here()),
            SyntaxError::Literal(word, want) => {
                format!("invalid character {} in literal {word} (expecting '{}')", here(), char::from(want))
            }
        })
    })
}

/// A position in a document.
pub struct JsonScanner<'a> {
    /// The document.
    pub bytes: &'a [u8],
    /// Offset of the next byte.
    pub at: usize,
}

impl<'a> JsonScanner<'a> {
    /// Skips white space and returns the next byte without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Result<u8, SyntaxError> {
        loop {
            match self.current_byte()? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Ok(byte),
            }
        }
    }

    /// Enters the object or list at the current position; returns whether it has entries.
    #[inline]
    pub fn enter_collection(&mut self, close: u8) -> Result<bool, SyntaxError> {
        self.at += 1;
        let empty = self.peek()? == close;
        self.at += usize::from(empty);
        Ok(!empty)
    }

    /// Advances past an entry; returns whether another one follows.
    #[inline]
    pub fn advance_entry(&mut self, close: u8) -> Result<bool, SyntaxError> {
        let byte = self.peek()?;
        if byte != b',' && byte != close {
            return Err(SyntaxError::At(match close {
                b'}' => "after object key:value pair",
                _ => "after array element",
            }));
        }
        self.at += 1;
        Ok(byte == b',')
    }

    /// Scans a key and its colon.
    #[inline]
    pub fn scan_key(&mut self) -> Result<QuotedRange, SyntaxError> {
        if self.peek()? != b'"' {
            return Err(SyntaxError::At("looking for beginning of object key string"));
        }
        let key = self.scan_string()?;
        if self.peek()? != b':' {
            return Err(SyntaxError::At("after object key"));
        }
        self.at += 1;
        Ok(key)
    }

    /// Scans a string; the current byte is its opening quote.
    #[inline]
    pub fn scan_string(&mut self) -> Result<QuotedRange, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let mut escapes = 0;
        loop {
            self.at += plain_prefix_length(&self.bytes[self.at..]);
            match self.current_byte()? {
                b'"' => break,
                b'\\' => {
                    escapes += 1;
                    self.at += 1;
                    self.scan_escape()?;
                }
                _ => return Err(SyntaxError::At("in string literal")),
            }
        }
        self.at += 1;
        Ok(QuotedRange { start, end: self.at - 1, escapes })
    }

    fn scan_escape(&mut self) -> Result<(), SyntaxError> {
        match self.current_byte()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.current_byte()?.is_ascii_hexdigit() {
                        return Err(SyntaxError::At("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(SyntaxError::At("in string escape code")),
        }
        Ok(())
    }

    /// Scans a number that starts at the current byte and returns its range.
    pub fn scan_number(&mut self) -> Result<std::ops::Range<usize>, SyntaxError> {
        let start = self.at;
        if self.current_byte()? == b'-' {
            self.at += 1;
        }
        match self.current_byte()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.skip_digits(),
            _ => return Err(SyntaxError::At("in numeric literal")),
        }
        if self.current_byte().is_ok_and(|byte| byte == b'.') {
            self.at += 1;
            self.require_digits("after decimal point in numeric literal")?;
        }
        if self.current_byte().is_ok_and(|byte| matches!(byte, b'e' | b'E')) {
            self.at += 1;
            if matches!(self.current_byte()?, b'+' | b'-') {
                self.at += 1;
            }
            self.require_digits("in exponent of numeric literal")?;
        }
        Ok(start..self.at)
    }

    fn require_digits(&mut self, context: &'static str) -> Result<(), SyntaxError> {
        if !self.current_byte()?.is_ascii_digit() {
            return Err(SyntaxError::At(context));
        }
        self.skip_digits();
        Ok(())
    }

    fn skip_digits(&mut self) {
        while self.current_byte().is_ok_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Scans `true`, `false` or `null`.
    pub fn scan_literal(&mut self, word: &'static str) -> Result<(), SyntaxError> {
        for want in word.bytes() {
            if self.current_byte()? != want {
                return Err(SyntaxError::Literal(word, want));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Skips a value of any type.
    pub fn skip_value(&mut self) -> Result<(), SyntaxError> {
        // Closing brackets of the open objects and lists.
        let mut open = Vec::new();
        loop {
            match self.peek()? {
                first @ (b'{' | b'[') => {
                    if open.len() == MAX_DEPTH {
                        return Err(SyntaxError::At("exceeded max depth"));
                    }
                    let close = if first == b'{' { b'}' } else { b']' };
                    if self.enter_collection(close)? {
                        open.push(close);
                        if close == b'}' {
                            self.scan_key()?;
                        }
                        continue;
                    }
                }
                b'"' => _ = self.scan_string()?,
                b'-' | b'0'..=b'9' => _ = self.scan_number()?,
                b't' => self.scan_literal("true")?,
                b'f' => self.scan_literal("false")?,
                b'n' => self.scan_literal("null")?,
                _ => return Err(NO_VALUE),
            }
            while let Some(close) = open.last().copied() {
                if self.advance_entry(close)? {
                    if close == b'}' {
                        self.scan_key()?;
                    }
                    break;
                }
                open.pop();
            }
            if open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Checks that only white space follows.
    pub fn expect_end(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            Ok(_) => Err(SyntaxError::At("after top-level value")),
            Err(_) => Ok(()),
        }
    }

    #[inline]
    fn current_byte(&self) -> Result<u8, SyntaxError> {
        self.bytes.get(self.at).copied().ok_or(SyntaxError::End)
    }
}

/// Returns the length of the prefix without quotes, backslashes and control characters, examining eight bytes at a
/// time.
#[inline]
fn plain_prefix_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let word = u64::from_le_bytes(*chunk);
        // Only the lowest set bit is reliable; higher ones may result from the borrow of the subtraction.
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let slash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = (quote | slash | below(word, 0x20)) & (ONES << 7);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len())
}

/// The current byte does not start a value.
pub const NO_VALUE: SyntaxError = SyntaxError::At("looking for beginning of value");

/// Quotes a byte as Go does, as a Latin-1 character.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa1 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn syntax_errors_have_go_messages() {
        let deep = [b'['; 10_001];
        let cases: [(&[u8], &str); 21] = [
            (b"{nope", "invalid character 'n' looking for beginning of object key string"),
            (b"", "unexpected end of JSON input"),
            (b"{", "unexpected end of JSON input"),
            (b"{\"a\"", "unexpected end of JSON input"),
            (b"\xcf", "invalid character '\u{cf}' looking for beginning of value"),
            (b"{\"a\" 1}", "invalid character '1' after object key"),
            (b"{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            (b"[1 2]", "invalid character '2' after array element"),
            (b"[1,]", "invalid character ']' looking for beginning of value"),
            (b"{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            (b"{}x", "invalid character 'x' after top-level value"),
            (b"nil", "invalid character 'i' in literal null (expecting 'u')"),
            (b"-x", "invalid character 'x' in numeric literal"),
            (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
            (b"1ex", "invalid character 'x' in exponent of numeric literal"),
            (b"01", "invalid character '1' after top-level value"),
            (b"\"\\x\"", "invalid character 'x' in string escape code"),
            (b"\"\\u12g\"", "invalid character 'g' in \\u hexadecimal character escape"),
            (b"\"\n\"", "invalid character '\\n' in string literal"),
            (b"'a'", "invalid character '\\'' looking for beginning of value"),
            (&deep, "invalid character '[' exceeded max depth"),
        ];
        for (bytes, want) in cases {
            assert_eq!(parse(bytes).unwrap_err().to_string(), want, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
