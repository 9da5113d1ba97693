//! What is wrong with JSON, in the words of Go, and the repairs that Go makes to text.
//!
//! Runs only over documents that could not be read: the first fault found is what the client is told.

use std::borrow::Cow;

use super::Error;

/// Go's limit; a document nested deeper is no JSON to it.
const MAX_DEPTH: usize = 10_000;

/// Replaces every byte that is no part of UTF-8.
pub fn replace_invalid(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    Cow::Owned(out)
}

/// Replaces `\ud800` and the like where the other half of the pair is missing. The text must be JSON.
pub fn replace_lone_surrogates(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let length = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(_), _) => {
                out.push_str("\\ufffd");
                rest = &escape[6..];
                continue;
            }
            (None, _) => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The surrogate that an escape at the beginning stands for.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xd800..0xe000).contains(code))
}

/// The number with the largest exponent or the most digits: the one that no float holds.
pub fn widest_number(text: &str) -> &str {
    let numbers = text.split(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)));
    let infinite = |number: &&str| number.parse::<f64>().is_ok_and(f64::is_infinite);
    numbers.filter(|number| number.starts_with(|c: char| c == '-' || c.is_ascii_digit())).find(infinite).unwrap_or("")
}

/// Whether bytes are JSON to Go.
pub fn check(bytes: &[u8]) -> Result<(), Error> {
    let mut scan = Scan { bytes, at: 0, open: Vec::new() };
    scan.document().map_err(|fault| match fault {
        Fault::End => Error::Syntax("unexpected end of JSON input".to_owned()),
        Fault::Depth => Error::Depth,
        Fault::At(context) => Error::Syntax(format!("invalid character {} {context}", quoted(scan.bytes[scan.at]))),
    })
}

enum Fault {
    End,
    Depth,
    /// The byte here cannot stand here.
    At(String),
}

fn at(context: &str) -> Fault {
    Fault::At(context.to_owned())
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// `{` and `[` that are not closed yet.
    open: Vec<u8>,
}

impl Scan<'_> {
    fn document(&mut self) -> Result<(), Fault> {
        self.value()?;
        while let Some(container) = self.open.last().copied() {
            self.skip_space();
            match (container, self.peek()?) {
                (b'{', b',') => {
                    self.at += 1;
                    self.skip_space();
                    self.key()?;
                    self.value()?;
                }
                (b'[', b',') => {
                    self.at += 1;
                    self.value()?;
                }
                (b'{', b'}') | (b'[', b']') => {
                    self.at += 1;
                    self.open.pop();
                }
                (b'{', _) => return Err(at("after object key:value pair")),
                _ => return Err(at("after array element")),
            }
        }
        self.skip_space();
        if self.at < self.bytes.len() { Err(at("after top-level value")) } else { Ok(()) }
    }

    /// A scalar, or the beginning of an object or list with its first key and value.
    fn value(&mut self) -> Result<(), Fault> {
        loop {
            self.skip_space();
            match self.peek()? {
                b'{' => {
                    self.enter(b'{')?;
                    if self.peek()? == b'}' {
                        return self.leave();
                    }
                    self.key()?;
                }
                b'[' => {
                    self.enter(b'[')?;
                    if self.peek()? == b']' {
                        return self.leave();
                    }
                }
                b'"' => return self.string(),
                b'-' | b'0'..=b'9' => return self.number(),
                b't' => return self.literal("true"),
                b'f' => return self.literal("false"),
                b'n' => return self.literal("null"),
                _ => return Err(at("looking for beginning of value")),
            }
        }
    }

    fn enter(&mut self, container: u8) -> Result<(), Fault> {
        self.at += 1;
        self.open.push(container);
        if self.open.len() > MAX_DEPTH {
            return Err(Fault::Depth);
        }
        self.skip_space();
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Fault> {
        self.at += 1;
        self.open.pop();
        Ok(())
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<(), Fault> {
        if self.peek()? != b'"' {
            return Err(at("looking for beginning of object key string"));
        }
        self.string()?;
        self.skip_space();
        if self.peek()? != b':' {
            return Err(at("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    self.escape()?;
                }
                0..0x20 => return Err(at("in string literal")),
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek()?.is_ascii_hexdigit() {
                        return Err(at("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(at("in string escape code")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(at("in numeric literal")),
        }
        if self.peek().is_ok_and(|byte| byte == b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if self.peek().is_ok_and(|byte| matches!(byte, b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn some_digits(&mut self, context: &str) -> Result<(), Fault> {
        if !self.peek()?.is_ascii_digit() {
            return Err(at(context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_ok_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Fault> {
        for want in word.bytes() {
            if self.peek()? != want {
                return Err(Fault::At(format!("in literal {word} (expecting '{}')", char::from(want))));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn skip_space(&mut self) {
        while self.peek().is_ok_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, Fault> {
        self.bytes.get(self.at).copied().ok_or(Fault::End)
    }
}

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
        let cases: [(&[u8], &str); 20] = [
            (b"{nope", "invalid character 'n' looking for beginning of object key string"),
            (b"", "unexpected end of JSON input"),
            (b"{", "unexpected end of JSON input"),
            (b"{\"a\"", "unexpected end of JSON input"),
            (b"\xcf", "invalid character 'Ï' looking for beginning of value"),
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
        ];
        for (bytes, want) in cases {
            assert_eq!(parse(bytes).unwrap_err().to_string(), want, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
