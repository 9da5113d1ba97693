//! The lexer. Invalid input is reported with the messages of `cel-go`'s ANTLR lexer, and skipped as far as that lexer
//! skips it.

use crate::issue::Issues;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    Escaped,
    End,
}

impl TokenKind {
    /// Returns the token's name in "expecting" messages.
    pub(super) fn display_name(self) -> &'static str {
        match self {
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LeftBracket => "'['",
            Self::RightBracket => "']'",
            Self::LeftBrace => "'{'",
            Self::RightBrace => "'}'",
            Self::LeftParen => "'('",
            Self::RightParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Not => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Identifier => "IDENTIFIER",
            Self::Escaped => "ESC_IDENTIFIER",
            Self::End => "<EOF>",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lexeme {
    pub(super) token: TokenKind,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Splits a source into tokens, ending with `End`.
pub(super) fn tokenize(source: &str, issues: &mut Issues) -> Vec<Lexeme> {
    let mut lexemes = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let rest = &source[at..];
        match scan_token(rest) {
            ScanResult::Space(len) => at += len,
            ScanResult::Token(token, len) => {
                lexemes.push(Lexeme { token, start: at as u32, end: (at + len) as u32 });
                at += len;
            }
            ScanResult::Bad(len) => {
                issues.report_error(at as u32, format!("Syntax error: token recognition error at: '{}'", &rest[..len]));
                at += len;
            }
        }
    }
    let end = source.len() as u32;
    lexemes.push(Lexeme { token: TokenKind::End, start: end, end });
    lexemes
}

enum ScanResult {
    Space(usize),
    Token(TokenKind, usize),
    Bad(usize),
}

/// Scans the first token of a non-empty string.
fn scan_token(text: &str) -> ScanResult {
    let bytes = text.as_bytes();
    match bytes[0] {
        b' ' | b'\t' | b'\r' | b'\n' | 0x0c => ScanResult::Space(1),
        b'/' if bytes.get(1) == Some(&b'/') => ScanResult::Space(text.find('\n').unwrap_or(text.len())),
        b'"' | b'\'' => scan_quoted(text, 0, false, TokenKind::String),
        b'0'..=b'9' => scan_number(bytes),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => scan_number(bytes),
        b'`' => scan_escaped_identifier(text),
        first if first == b'_' || first.is_ascii_alphabetic() => scan_word(text),
        _ => scan_symbol(text),
    }
}

fn scan_word(text: &str) -> ScanResult {
    if let Some((prefix, raw, token)) = literal_prefix(text.as_bytes())
        && let quoted @ ScanResult::Token(..) = scan_quoted(text, prefix, raw, token)
    {
        return quoted;
    }
    let len = text.bytes().take_while(|c| *c == b'_' || c.is_ascii_alphanumeric()).count();
    let token = match &text[..len] {
        "in" => TokenKind::In,
        "true" => TokenKind::True,
        "false" => TokenKind::False,
        "null" => TokenKind::Null,
        _ => TokenKind::Identifier,
    };
    ScanResult::Token(token, len)
}

/// Parses the letters before a quote: their number, whether the literal is raw, and its token.
fn literal_prefix(bytes: &[u8]) -> Option<(usize, bool, TokenKind)> {
    let quote = |at: usize| matches!(bytes.get(at), Some(b'"' | b'\''));
    let is = |at: usize, letter: u8| bytes.get(at).is_some_and(|c| c.eq_ignore_ascii_case(&letter));
    match () {
        () if is(0, b'r') && quote(1) => Some((1, true, TokenKind::String)),
        () if is(0, b'b') && quote(1) => Some((1, false, TokenKind::Bytes)),
        () if is(0, b'b') && is(1, b'r') && quote(2) => Some((2, true, TokenKind::Bytes)),
        () => None,
    }
}

/// Scans a literal whose quote is at `start`; an invalid one is skipped up to the error.
fn scan_quoted(text: &str, start: usize, raw: bool, token: TokenKind) -> ScanResult {
    let quote = &text[start..=start];
    let triple = quote.repeat(3);
    let body = &text[start..];
    if body.starts_with(&triple)
        && let Ok(len) = quoted_length(&body[3..], &triple, raw)
    {
        return ScanResult::Token(token, start + 3 + len);
    }
    match quoted_length(&body[1..], quote, raw) {
        Ok(len) => ScanResult::Token(token, start + 1 + len),
        Err(len) => ScanResult::Bad(start + 1 + len),
    }
}

/// Returns the length up to and including the closing quotes; `Err` is the length up to and including an invalid
/// character.
fn quoted_length(body: &str, quotes: &str, raw: bool) -> Result<usize, usize> {
    let mut at = 0;
    while at < body.len() {
        let rest = &body[at..];
        if rest.starts_with(quotes) {
            return Ok(at + quotes.len());
        }
        let c = rest.chars().next().map_or(1, char::len_utf8);
        match rest.as_bytes()[0] {
            b'\n' | b'\r' if quotes.len() == 1 => return Err(at + 1),
            b'\\' if !raw => match escape_length(rest) {
                Ok(len) => at += len,
                Err(len) => return Err(at + len),
            },
            _ => at += c,
        }
    }
    Err(body.len())
}

/// Returns the length of the escape at the start of a string; `Err` is the length at which it is invalid.
fn escape_length(text: &str) -> Result<usize, usize> {
    let bytes = text.as_bytes();
    let digits = |from: usize, count: usize, good: fn(&u8) -> bool| {
        let found = bytes.iter().skip(from).take(count).take_while(|c| good(c)).count();
        if found == count { Ok(from + count) } else { Err(char_end(text, from + found)) }
    };
    match bytes.get(1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(2),
        Some(b'x' | b'X') => digits(2, 2, u8::is_ascii_hexdigit),
        Some(b'u') => digits(2, 4, u8::is_ascii_hexdigit),
        Some(b'U') => digits(2, 8, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => digits(2, 2, |c| matches!(c, b'0'..=b'7')),
        _ => Err(char_end(text, 1)),
    }
}

/// Returns the end of the character at an offset.
fn char_end(text: &str, at: usize) -> usize {
    at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
}

fn scan_number(bytes: &[u8]) -> ScanResult {
    let digits = |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|c| c.is_ascii_digit()).count();
    let unsigned = |token, len: usize| match bytes.get(len) {
        Some(b'u' | b'U') => ScanResult::Token(TokenKind::Uint, len + 1),
        _ => ScanResult::Token(token, len),
    };
    let hex = bytes[2.min(bytes.len())..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
    if bytes.starts_with(b"0x") && hex > 0 {
        return unsigned(TokenKind::Int, 2 + hex);
    }
    let whole = digits(0);
    let mut len = whole;
    if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        if digits(len + 1 + sign) > 0 {
            len += 1 + sign + digits(len + 1 + sign);
        }
    }
    if len > whole { ScanResult::Token(TokenKind::Float, len) } else { unsigned(TokenKind::Int, whole) }
}

fn scan_escaped_identifier(text: &str) -> ScanResult {
    let inside = |c: &u8| c.is_ascii_alphanumeric() || b"_.-/ ".contains(c);
    let len = text.bytes().skip(1).take_while(|c| inside(c)).count();
    match text.as_bytes().get(1 + len) {
        Some(b'`') if len > 0 => ScanResult::Token(TokenKind::Escaped, len + 2),
        _ => ScanResult::Bad(char_end(text, 1 + len)),
    }
}

fn scan_symbol(text: &str) -> ScanResult {
    use TokenKind::*;
    let bytes = text.as_bytes();
    let two = match bytes.get(..2) {
        Some(b"==") => Some(Equals),
        Some(b"!=") => Some(NotEquals),
        Some(b"<=") => Some(LessEquals),
        Some(b">=") => Some(GreaterEquals),
        Some(b"&&") => Some(And),
        Some(b"||") => Some(Or),
        _ => None,
    };
    if let Some(token) = two {
        return ScanResult::Token(token, 2);
    }
    let one = match bytes[0] {
        b'<' => Less,
        b'>' => Greater,
        b'[' => LeftBracket,
        b']' => RightBracket,
        b'{' => LeftBrace,
        b'}' => RightBrace,
        b'(' => LeftParen,
        b')' => RightParen,
        b'.' => Dot,
        b',' => Comma,
        b'-' => Minus,
        b'!' => Not,
        b'?' => Question,
        b':' => Colon,
        b'+' => Plus,
        b'*' => Star,
        b'/' => Slash,
        b'%' => Percent,
        b'=' | b'&' | b'|' => return ScanResult::Bad(char_end(text, 1)),
        _ => return ScanResult::Bad(char_end(text, 0)),
    };
    ScanResult::Token(one, 1)
}
