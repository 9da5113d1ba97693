//! Resolution of plain scalars by the YAML 1.1 rules of Go's library.

use jiff::civil::Date;

/// A resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum ResolvedScalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above the range of `i64`.
    Large(u64),
    Float(f64),
    /// A date or time: a string in JSON, but quoted on output because other YAML readers resolve it.
    Timestamp,
    Text,
}

/// Resolves a plain scalar without a tag.
pub fn resolve_plain(text: &str) -> ResolvedScalar {
    let Some(first) = text.bytes().next() else { return ResolvedScalar::Null };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => resolve_word(text),
        b'.' => resolve_special_float(text).or_else(|| resolve_float(text)).unwrap_or(ResolvedScalar::Text),
        b'+' | b'-' | b'0'..=b'9' => resolve_special_float(text)
            .or_else(|| resolve_timestamp(text))
            .or_else(|| resolve_number(text))
            .unwrap_or(ResolvedScalar::Text),
        _ => ResolvedScalar::Text,
    }
}

fn resolve_word(text: &str) -> ResolvedScalar {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => ResolvedScalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            ResolvedScalar::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => ResolvedScalar::Null,
        _ => ResolvedScalar::Text,
    }
}

fn resolve_special_float(text: &str) -> Option<ResolvedScalar> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(ResolvedScalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(ResolvedScalar::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => Some(ResolvedScalar::Float(f64::NEG_INFINITY)),
        _ => None,
    }
}

fn resolve_number(text: &str) -> Option<ResolvedScalar> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    resolve_integer(&plain).or_else(|| resolve_float(&plain))
}

/// Parses an integer with Go's prefixes; a leading zero means octal.
fn resolve_integer(text: &str) -> Option<ResolvedScalar> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some(prefix) if prefix.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    match (negative, i64::try_from(value)) {
        (false, Ok(value)) => Some(ResolvedScalar::Int(value)),
        (true, Ok(value)) => Some(ResolvedScalar::Int(-value)),
        (true, Err(_)) if value == 1 << 63 => Some(ResolvedScalar::Int(i64::MIN)),
        (false, Err(_)) if !text.starts_with('+') => Some(ResolvedScalar::Large(value)),
        _ => None,
    }
}

/// Parses a decimal float; `None` if it is out of range, which makes it a string.
fn resolve_float(text: &str) -> Option<ResolvedScalar> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let shaped = unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit())
        && unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let value: f64 = if shaped { text.parse().ok()? } else { return None };
    value.is_finite().then_some(ResolvedScalar::Float(value))
}

/// Parses a timestamp: `2006-1-2`, `2006-1-2 15:4:5.9` or `2006-1-2T15:4:5.9Z`, with `t` for `T` and an offset for `Z`.
fn resolve_timestamp(text: &str) -> Option<ResolvedScalar> {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(text[at..].split_at(1))),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if year.len() != 4 || parts.next().is_some() {
        return None;
    }
    Date::new(year.parse().ok()?, parse_small_number(month)?, parse_small_number(day)?).ok()?;
    let valid = match time {
        None => true,
        Some((" ", clock)) => is_clock(clock),
        Some((_, clock)) => {
            let end = clock.find(['Z', '+', '-'])?;
            is_clock(&clock[..end]) && is_offset(&clock[end..])
        }
    };
    valid.then_some(ResolvedScalar::Timestamp)
}

/// Parses a number of one or two digits.
fn parse_small_number(text: &str) -> Option<i8> {
    let digits = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn is_clock(text: &str) -> bool {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Option<Vec<i8>> = clock.split(':').map(parse_small_number).collect();
    matches!(parts.as_deref(), Some([0..24, 0..60, 0..60]))
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_offset(text: &str) -> bool {
    match text.as_bytes() {
        b"Z" => true,
        [b'+' | b'-', hours @ .., b':', _, _] => {
            hours.len() == 2 && text[1..].bytes().all(|b| b.is_ascii_digit() || b == b':')
        }
        _ => false,
    }
}

/// Whether other libraries parse it as a base-60 number, so that it must be quoted.
pub fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    if !first.starts_with(|c: char| c.is_ascii_digit())
        || !first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    {
        return false;
    }
    let mut rest: Vec<&str> = parts.collect();
    if let Some(last) = rest.last_mut()
        && let Some((whole, fraction)) = last.split_once('.')
        && fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    {
        *last = whole;
    }
    let minute = |part: &&str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [b'0'..=b'5', digit] => digit.is_ascii_digit(),
        _ => false,
    };
    !rest.is_empty() && rest.iter().all(minute)
}
