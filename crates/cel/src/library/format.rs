//! `'%s is %d'.format([…])`. Numbers use the `en-US` locale, which is `cel-go`'s default.

use super::{FunctionBodies, MAX_STRING_BYTES, conversions};
use crate::{
    error::EvalError,
    types::Type,
    value::{Value, format_double},
};

pub(super) const BODIES: FunctionBodies = &[("format", format_string)];

/// A format clause: how an argument is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatClause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// An error of a format string or of one of its arguments.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("{0}")]
    String(String),
    #[error("could not parse formatting clause: {0}")]
    Clause(String),
    #[error("error during formatting: {0}")]
    Argument(String),
}

impl FormatClause {
    /// Whether the clause accepts values of a type.
    pub(crate) fn accepts_type(self, ty: &Type) -> bool {
        match self {
            Self::String => {
                !matches!(ty, Type::Optional(_) | Type::Native(_) | Type::Object(_) | Type::Error | Type::Param(_))
            }
            Self::Decimal | Self::Octal => matches!(ty, Type::Int | Type::Uint),
            Self::Fixed(_) | Self::Scientific(_) => matches!(ty, Type::Double | Type::String),
            Self::Binary => matches!(ty, Type::Int | Type::Uint | Type::Bool),
            Self::Hex { .. } => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
        }
    }

    /// Returns the error message for an argument of an unsupported type.
    pub(crate) fn unsupported_message(self, ty: &str) -> String {
        let only = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{only}, was given {ty}")
    }

    fn format_argument(self, value: &Value<'_>) -> Result<String, FormatError> {
        let unsupported = || FormatError::Argument(self.unsupported_message(value.type_of().type_name()));
        match (self, value) {
            (Self::String, _) => format_string_value(value).ok_or_else(unsupported),
            (Self::Decimal, Value::Int(number)) => Ok(number.to_string()),
            (Self::Decimal, Value::Uint(number)) => Ok(number.to_string()),
            (Self::Fixed(digits), _) => Ok(format_fixed(special_double(value).ok_or_else(unsupported)?, digits)),
            (Self::Scientific(digits), _) => {
                Ok(format_scientific(special_double(value).ok_or_else(unsupported)?, digits))
            }
            (Self::Binary, Value::Int(number)) => Ok(format_radix(*number, |size| format!("{size:b}"))),
            (Self::Binary, Value::Uint(number)) => Ok(format!("{number:b}")),
            (Self::Binary, Value::Bool(value)) => Ok(u8::from(*value).to_string()),
            (Self::Octal, Value::Int(number)) => Ok(format_radix(*number, |size| format!("{size:o}"))),
            (Self::Octal, Value::Uint(number)) => Ok(format!("{number:o}")),
            (Self::Hex { upper }, _) => {
                let text = match value {
                    Value::Int(number) => format_radix(*number, |size| format!("{size:x}")),
                    Value::Uint(number) => format!("{number:x}"),
                    Value::String(text) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                    Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                    _ => return Err(unsupported()),
                };
                Ok(if upper { text.to_uppercase() } else { text })
            }
            _ => Err(unsupported()),
        }
    }
}

fn format_radix(number: i64, write: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, write(number.unsigned_abs()))
}

/// Returns a double, or the double that a string such as `NaN` or `Infinity` represents.
fn special_double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => conversions::parse_double(text),
        _ => None,
    }
}

fn format_non_finite(number: f64) -> Option<String> {
    match number {
        number if number.is_nan() => Some("NaN".into()),
        f64::INFINITY => Some("∞".into()),
        f64::NEG_INFINITY => Some("-∞".into()),
        _ => None,
    }
}

/// Formats in fixed-point notation, with commas between thousands.
fn format_fixed(number: f64, digits: usize) -> String {
    if let Some(text) = format_non_finite(number) {
        return text;
    }
    let text = format!("{:.digits$}", number.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    format!("{sign}{grouped}{fraction}")
}

/// Formats in scientific notation, such as `1.052033 × 10⁰³`.
fn format_scientific(number: f64, digits: usize) -> String {
    if let Some(text) = format_non_finite(number) {
        return text;
    }
    let text = format!("{number:.6e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised: String = format!("{:02}", exponent.abs())
        .chars()
        .map(|digit| ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit.to_digit(10).unwrap_or(0) as usize])
        .collect();
    let sign = if exponent < 0 { "⁻" } else { "" };
    // As in `cel-go`, the precision acts as a minimum width.
    format!("{:>digits$}", format!("{mantissa}×10{sign}{raised}"))
}

fn format_string_value(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => format_double(*number),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Timestamp(timestamp) => timestamp.to_string(),
        Value::Duration(duration) => duration.to_string(),
        Value::Type(ty) => ty.type_name().into(),
        Value::List(list) => {
            let items: Option<Vec<_>> = list.iter().map(|item| format_nested_value(&item)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.entries() {
                entries.push((format_nested_value(&key.into())?, format_nested_value(&value)?));
            }
            entries.sort();
            let entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        _ => return None,
    })
}

/// Formats a list element or map entry as a literal.
fn format_nested_value(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::String(text) => go_quote(text),
        Value::Bytes(bytes) => format!("b{}", go_quote(&String::from_utf8_lossy(bytes))),
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        Value::Double(number) => go_quote(&format_double(*number)),
        Value::Timestamp(timestamp) => format!("timestamp({})", go_quote(&timestamp.to_string())),
        Value::Duration(duration) => format!("duration({})", go_quote(&duration.to_string())),
        other => format_string_value(other)?,
    })
}

/// Quotes a string as Go's `strconv.Quote` does.
fn go_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Scans a format string and calls `write` for each clause with its argument index.
pub(crate) fn scan_format(
    format: &str,
    mut write: impl FnMut(usize, FormatClause) -> Result<String, FormatError>,
) -> Result<String, FormatError> {
    let mut out = String::new();
    let mut rest = format;
    let mut argument = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(more) = rest.strip_prefix('%') {
            out.push('%');
            rest = more;
            continue;
        }
        if rest.is_empty() {
            return Err(FormatError::String("unexpected end of string".into()));
        }
        let (clause, len) = parse_clause(rest)?;
        out.push_str(&write(argument, clause)?);
        if out.len() > MAX_STRING_BYTES {
            return Err(FormatError::String("result is too long".into()));
        }
        argument += 1;
        rest = &rest[len..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Parses the clause after a percent sign and returns it with its length.
fn parse_clause(text: &str) -> Result<(FormatClause, usize), FormatError> {
    let mut at = 0;
    let mut precision = 6;
    if let Some(digits) = text.strip_prefix('.') {
        let len = digits.bytes().take_while(u8::is_ascii_digit).count();
        at = 1 + len;
        if at >= text.len() {
            return Err(FormatError::Clause(
                "error while parsing precision: could not find end of precision specifier".into(),
            ));
        }
        precision = digits[..len].parse().map_err(|_| {
            let number = &digits[..len];
            FormatError::Clause(format!("error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing \"{number}\": invalid syntax"))
        })?;
    }
    let clause = match text.as_bytes()[at] {
        b's' => FormatClause::String,
        b'd' => FormatClause::Decimal,
        // No double has more digits than this.
        b'f' => FormatClause::Fixed(precision.min(1_100)),
        b'e' => FormatClause::Scientific(precision.min(1_100)),
        b'b' => FormatClause::Binary,
        b'x' => FormatClause::Hex { upper: false },
        b'X' => FormatClause::Hex { upper: true },
        b'o' => FormatClause::Octal,
        other => return Err(FormatError::Clause(format!("unrecognized formatting clause \"{}\"", other as char))),
    };
    Ok((clause, at + 1))
}

fn format_string<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (Value::String(text), Value::List(list)) = (&args[0], &args[1]) else {
        return Err(EvalError::no_such_overload());
    };
    let formatted = scan_format(text, |at, clause| {
        let missing = || FormatError::String(format!("index {at} out of range"));
        let value = list.get(at).map_err(|_| missing())?;
        clause.format_argument(&value)
    });
    formatted.map_err(|error| EvalError::new(error.to_string())).and_then(super::checked_string)
}
