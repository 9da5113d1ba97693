//! JSON byte by byte: where texts, numbers and values end, and what is wrong with them, in the words of Go.
//!
//! [`Scan`] is what every reader of JSON moves along a document; it copies nothing and never recurses.

use super::Error;

/// Go's limit; a document nested deeper is no JSON to it.
const MAX_DEPTH: usize = 10_000;

/// Why the byte at the scanner's place cannot stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The document ends too early.
    End,
    /// Where the byte was found.
    At(&'static str),
    /// The word that it breaks, and the byte that should be there.
    Literal(&'static str, u8),
}

/// A text between its quotes.
#[derive(Clone, Copy, Debug)]
pub struct Quoted {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
    /// How many escapes it has. Not a truth value: a struct without gaps is returned with fewer and aligned moves.
    pub escapes: usize,
}

/// Whether bytes are JSON to Go.
pub fn check(bytes: &[u8]) -> Result<(), Error> {
    let mut scan = Scan { bytes, at: 0 };
    scan.skip().and_then(|()| scan.end()).map_err(|fault| {
        let here = || quoted(bytes[scan.at]);
        Error::Syntax(match fault {
            Fault::End => "unexpected end of JSON input".to_owned(),
            Fault::At(context) => format!("invalid character {} {context}", here()),
            Fault::Literal(word, want) => {
                format!("invalid character {} in literal {word} (expecting '{}')", here(), char::from(want))
            }
        })
    })
}

/// A place in a document.
pub struct Scan<'a> {
    /// The document.
    pub bytes: &'a [u8],
    /// The next byte.
    pub at: usize,
}

impl<'a> Scan<'a> {
    /// The next byte that is no space.
    #[inline]
    pub fn peek(&mut self) -> Result<u8, Fault> {
        loop {
            match self.here()? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Ok(byte),
            }
        }
    }

    /// Enters an object or list, whose first byte is here; whether anything is in it.
    #[inline]
    pub fn enter(&mut self, close: u8) -> Result<bool, Fault> {
        self.at += 1;
        let empty = self.peek()? == close;
        self.at += usize::from(empty);
        Ok(!empty)
    }

    /// Goes on after an entry; whether there is another.
    #[inline]
    pub fn more(&mut self, close: u8) -> Result<bool, Fault> {
        let byte = self.peek()?;
        if byte != b',' && byte != close {
            return Err(Fault::At(match close {
                b'}' => "after object key:value pair",
                _ => "after array element",
            }));
        }
        self.at += 1;
        Ok(byte == b',')
    }

    /// A key and its colon.
    #[inline]
    pub fn key(&mut self) -> Result<Quoted, Fault> {
        if self.peek()? != b'"' {
            return Err(Fault::At("looking for beginning of object key string"));
        }
        let key = self.text()?;
        if self.peek()? != b':' {
            return Err(Fault::At("after object key"));
        }
        self.at += 1;
        Ok(key)
    }

    /// A text, whose first quote is here.
    #[inline]
    pub fn text(&mut self) -> Result<Quoted, Fault> {
        self.at += 1;
        let start = self.at;
        let mut escapes = 0;
        loop {
            self.at += plain(&self.bytes[self.at..]);
            match self.here()? {
                b'"' => break,
                b'\\' => {
                    escapes += 1;
                    self.at += 1;
                    self.escape()?;
                }
                _ => return Err(Fault::At("in string literal")),
            }
        }
        self.at += 1;
        Ok(Quoted { start, end: self.at - 1, escapes })
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.here()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.here()?.is_ascii_hexdigit() {
                        return Err(Fault::At("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(Fault::At("in string escape code")),
        }
        Ok(())
    }

    /// A number, whose first byte is here; the bytes that it has.
    pub fn number(&mut self) -> Result<std::ops::Range<usize>, Fault> {
        let start = self.at;
        if self.here()? == b'-' {
            self.at += 1;
        }
        match self.here()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(Fault::At("in numeric literal")),
        }
        if self.here().is_ok_and(|byte| byte == b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if self.here().is_ok_and(|byte| matches!(byte, b'e' | b'E')) {
            self.at += 1;
            if matches!(self.here()?, b'+' | b'-') {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(start..self.at)
    }

    fn some_digits(&mut self, context: &'static str) -> Result<(), Fault> {
        if !self.here()?.is_ascii_digit() {
            return Err(Fault::At(context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.here().is_ok_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// `true`, `false` or `null`.
    pub fn literal(&mut self, word: &'static str) -> Result<(), Fault> {
        for want in word.bytes() {
            if self.here()? != want {
                return Err(Fault::Literal(word, want));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// A whole value, whatever it is.
    pub fn skip(&mut self) -> Result<(), Fault> {
        // What closes the objects and lists that are open.
        let mut open = Vec::new();
        loop {
            match self.peek()? {
                first @ (b'{' | b'[') => {
                    if open.len() == MAX_DEPTH {
                        return Err(Fault::At("exceeded max depth"));
                    }
                    let close = if first == b'{' { b'}' } else { b']' };
                    if self.enter(close)? {
                        open.push(close);
                        if close == b'}' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => _ = self.text()?,
                b'-' | b'0'..=b'9' => _ = self.number()?,
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                _ => return Err(NO_VALUE),
            }
            while let Some(close) = open.last().copied() {
                if self.more(close)? {
                    if close == b'}' {
                        self.key()?;
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

    /// The end of the document.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Ok(_) => Err(Fault::At("after top-level value")),
            Err(_) => Ok(()),
        }
    }

    #[inline]
    fn here(&self) -> Result<u8, Fault> {
        self.bytes.get(self.at).copied().ok_or(Fault::End)
    }
}

/// How many bytes a text goes on without a quote, a backslash or a control character, eight at a time.
#[inline]
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let word = u64::from_le_bytes(*chunk);
        // The lowest bit that is set is right; those above it may be the borrow of a subtraction.
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

/// Nothing begins with the byte here.
pub const NO_VALUE: Fault = Fault::At("looking for beginning of value");

/// A byte as Go shows it, taken for a character of Latin-1.
fn quoted(byte: u8) -> String {
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
    fn faults_are_told_in_the_words_of_go() {
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
