//! Durations as Go formats them: `1h15m30.5s`. Protobuf encodes them as nanoseconds.

use crate::ParseError;

/// Units in nanoseconds, longest first.
const UNITS: [(&str, u64); 8] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ns", 1),
];

/// Parses a duration into nanoseconds; the error is Go's message.
pub fn try_parse(text: &str) -> Result<i64, ParseError> {
    parse(text).ok_or_else(|| {
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        while let Some((_, after)) = parse_term(rest) {
            rest = after;
        }
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let unit = &number[..number.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(number.len())];
        ParseError(match (rest.len() - number.len(), unit) {
            (0, _) => format!("time: invalid duration {text:?}"),
            (_, "") => format!("time: missing unit in duration {text:?}"),
            _ if UNITS.iter().any(|(name, _)| *name == unit) => format!("time: invalid duration {text:?}"),
            _ => format!("time: unknown unit {unit:?} in duration {text:?}"),
        })
    })
}

/// Parses a duration into nanoseconds; `None` if it is invalid or out of range.
pub fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, after) = parse_term(rest)?;
        total = total.checked_add(nanos).filter(|total| *total <= 1 << 63)?;
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (true, Ok(total)) => Some(-total),
        (true, Err(_)) => Some(i64::MIN),
        (false, total) => total.ok(),
    }
}

/// Parses a duration of the schema format `duration`: Go's syntax, or numbers with units up to weeks, which may be
/// spelled out, anywhere in the text.
pub fn parse_lenient(text: &str) -> Option<i64> {
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", 1_000_000_000),
        (&["m"], "min", 60_000_000_000),
        (&["h", "hr"], "hour", 3_600_000_000_000),
        (&["d"], "day", 86_400_000_000_000),
        (&["w", "wk"], "week", 604_800_000_000_000),
    ];
    if let Some(nanos) = parse(text) {
        return Some(nanos);
    }
    let mut total = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let from = &rest[start..];
        let (number, after) = from.split_at(from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len()));
        let after = after.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let (unit, after) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(after.len()));
        rest = after;
        if unit.is_empty() {
            continue;
        }
        let (number, unit) = (number.parse::<i64>().ok()?, unit.to_lowercase());
        let known = UNITS.iter().find(|(names, long, _)| names.contains(&unit.as_str()) || unit.starts_with(long));
        if let Some((.., nanos)) = known {
            total = Some(total.unwrap_or(0i64).wrapping_add(number.wrapping_mul(*nanos)));
        }
    }
    total
}

/// Parses a number with its unit; returns nanoseconds and the rest of the text.
fn parse_term(text: &str) -> Option<(u64, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_end);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse::<f64>().ok()? * *scale as f64 };
    Some((whole.checked_mul(*scale)?.checked_add(part as u64)?, after))
}

/// Formats nanoseconds as Go does.
pub fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", format_decimal(total, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", format_decimal(total, 1_000_000)),
        _ => {
            let minutes = total / 60_000_000_000;
            let seconds = format_decimal(total % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Formats `value / unit` without trailing zeros.
fn format_decimal(value: u64, unit: u64) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{:0width$}", fraction, width = unit.ilog10() as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip_like_go() {
        let cases = [
            ("0", "0s"),
            ("90s", "1m30s"),
            ("1.5h", "1h30m0s"),
            ("100ms", "100ms"),
            ("1500us", "1.5ms"),
            ("2us", "2µs"),
            ("-1h15m30.918273645s", "-1h15m30.918273645s"),
            ("7ns", "7ns"),
            ("48h", "48h0m0s"),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text).map(format).as_deref(), Some(want), "{text}");
        }
        for text in ["", "-", "1", "1x", "s", ".s", "1..5s", "9999999h", "1.5.5s"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let faults =
            [("x", "invalid duration"), ("1", "missing unit in duration"), ("1h1q", "unknown unit \"q\" in duration")];
        for (text, want) in faults {
            assert_eq!(try_parse(text), Err(ParseError(format!("time: {want} {text:?}"))));
        }
        for (text, want) in [
            ("1.5h", Some("1h30m0s")),
            ("2 Days, 3 hrs and 1 week", Some("216h0m0s")),
            ("3 fortnights", None),
            ("d", None),
        ] {
            assert_eq!(parse_lenient(text).map(format).as_deref(), want, "{text}");
        }
        assert_eq!(parse("-9223372036854775808ns"), Some(i64::MIN));
        assert_eq!(format(i64::MIN), "-2562047h47m16.854775808s");
    }
}
