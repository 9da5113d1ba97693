//! Literal values.

use super::lexer::TokenKind;
use crate::ast::Literal;

const BAD_ESCAPE: &str = "unable to unescape string";
const BAD_CHARACTER: &str = "invalid unicode code point";

/// Parses the value of a literal token; the error is the message.
pub(super) fn parse_literal(token: TokenKind, text: &str, negative: bool) -> Result<Literal, &'static str> {
    Ok(match token {
        TokenKind::True => Literal::Bool(true),
        TokenKind::False => Literal::Bool(false),
        TokenKind::Int => Literal::Int(parse_int(text, negative).ok_or("invalid int literal")?),
        TokenKind::Uint => Literal::Uint(parse_uint(&text[..text.len() - 1]).ok_or("invalid uint literal")?),
        TokenKind::Float => Literal::Double(parse_double(text, negative).ok_or("invalid double literal")?),
        TokenKind::String => {
            Literal::String(String::from_utf8(unescape_string(text, false)?).map_err(|_| BAD_CHARACTER)?.into())
        }
        TokenKind::Bytes => Literal::Bytes(unescape_string(&text[1..], true)?.into()),
        _ => Literal::Null,
    })
}

fn parse_uint(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_int(text: &str, negative: bool) -> Option<i64> {
    let size = i128::from(parse_uint(text)?);
    i64::try_from(if negative { -size } else { size }).ok()
}

fn parse_double(text: &str, negative: bool) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(if negative { -value } else { value })
}

/// Returns the bytes that a quoted string represents.
fn unescape_string(text: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let raw = text.starts_with(['r', 'R']);
    let text = if raw { &text[1..] } else { text };
    let triple = text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\""));
    let quotes = if triple { 3 } else { 1 };
    let mut rest = &text[quotes..text.len() - quotes];
    if raw {
        return Ok(rest.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(rest.len());
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + decode_escape(&rest[at..], bytes, &mut out)?..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Decodes an escape, which the lexer has validated, and returns its length.
fn decode_escape(text: &str, bytes: bool, out: &mut Vec<u8>) -> Result<usize, &'static str> {
    let letter = text.as_bytes()[1];
    let simple = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'x' | b'X' => return decode_code_point(text, 2, 2, 16, bytes, out),
        b'u' | b'U' if bytes => return Err(BAD_ESCAPE),
        b'u' => return decode_code_point(text, 2, 4, 16, bytes, out),
        b'U' => return decode_code_point(text, 2, 8, 16, bytes, out),
        b'0'..=b'3' => return decode_code_point(text, 1, 3, 8, bytes, out),
        other => other,
    };
    out.push(simple);
    Ok(2)
}

fn decode_code_point(
    text: &str,
    from: usize,
    count: usize,
    radix: u32,
    bytes: bool,
    out: &mut Vec<u8>,
) -> Result<usize, &'static str> {
    let end = from + count;
    let code = text.get(from..end).and_then(|digits| u32::from_str_radix(digits, radix).ok()).ok_or(BAD_ESCAPE)?;
    if bytes {
        out.push(code as u8);
    } else {
        let c = char::from_u32(code).ok_or(BAD_CHARACTER)?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(end)
}
