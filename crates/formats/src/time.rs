//! Times as in the API, and ages as in printed tables.

use jiff::{
    Timestamp,
    civil::{Date, Time},
    tz::Offset,
};

use crate::ParseError;

/// Formats a time with seconds: `2026-01-02T03:04:05Z`.
pub fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time with microseconds: `2026-01-02T03:04:05.123456Z`.
pub fn format_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Parses an RFC 3339 time.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Whether a text is known to be in the form that [`format_seconds`] writes.
pub fn is_canonical(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>, low: &str, high: &str| {
        text.get(range).is_some_and(|part| (low..=high).contains(&part) && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    text.len() == 20
        && marks.iter().all(|(at, mark)| text.as_bytes()[*at] == *mark)
        && digits(0..4, "0001", "9999")
        && digits(5..7, "01", "12")
        && digits(8..10, "01", "28")
        && digits(11..13, "00", "23")
        && digits(14..16, "00", "59")
        && digits(17..19, "00", "59")
}

/// Parses a time with Go's RFC 3339 layout, with exactly six fraction digits if `micros` is set; the error is Go's
/// message.
pub fn try_parse(text: &str, micros: bool) -> Result<Timestamp, ParseError> {
    LayoutParser { whole: text, rest: text, micros }.parse_time()
}

/// The state of parsing a text by a layout, element by element.
struct LayoutParser<'a> {
    whole: &'a str,
    rest: &'a str,
    micros: bool,
}

impl LayoutParser<'_> {
    fn parse_time(&mut self) -> Result<Timestamp, ParseError> {
        let year = self.parse_number(4, true, "2006", 0..10_000)?;
        self.expect_separator("-")?;
        let month = self.parse_number(2, true, "01", 1..13)?;
        self.expect_separator("-")?;
        let day = self.parse_number(2, false, "02", 0..100)?;
        self.expect_separator("T")?;
        let hour = self.parse_number(2, false, "15", 0..24)?;
        self.expect_separator(":")?;
        let minute = self.parse_number(2, true, "04", 0..60)?;
        self.expect_separator(":")?;
        let second = self.parse_number(2, true, "05", 0..60)?;
        let nanos = self.parse_fraction()?;
        let offset = self.parse_offset()?;
        if !self.rest.is_empty() {
            return Err(ParseError(format!(
                "parsing time {}: extra text: {}",
                go_quote(self.whole),
                go_quote(self.rest)
            )));
        }
        let date = Date::new(year as i16, month as i8, day as i8).map_err(|_| self.out_of_range_error("day"))?;
        let clock =
            Time::new(hour as i8, minute as i8, second as i8, nanos).map_err(|_| self.out_of_range_error("second"))?;
        let offset = Offset::from_seconds(offset).map_err(|_| self.out_of_range_error("time zone offset hour"))?;
        offset.to_timestamp(date.to_datetime(clock)).map_err(|_| self.out_of_range_error("year"))
    }

    /// Parses a number of `digits` digits, or of at least one if it is not `fixed`.
    fn parse_number(
        &mut self,
        digits: usize,
        fixed: bool,
        name: &str,
        range: std::ops::Range<i32>,
    ) -> Result<i32, ParseError> {
        let have = self.rest.bytes().take(digits).take_while(u8::is_ascii_digit).count();
        if have == 0 || fixed && have < digits {
            return Err(self.cannot_parse_error(name));
        }
        let (number, rest) = self.rest.split_at(have);
        let number = number.parse().map_err(|_| self.cannot_parse_error(name))?;
        self.rest = rest;
        if range.contains(&number) { Ok(number) } else { Err(self.out_of_range_error(element_name(name))) }
    }

    fn expect_separator(&mut self, mark: &str) -> Result<(), ParseError> {
        self.rest = self.rest.strip_prefix(mark).ok_or_else(|| self.cannot_parse_error(mark))?;
        Ok(())
    }

    /// Parses the fraction of a second into nanoseconds, truncating further digits.
    fn parse_fraction(&mut self) -> Result<i32, ParseError> {
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(rest) => rest.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        if self.micros && digits < 6 {
            return Err(self.cannot_parse_error(".000000"));
        }
        if digits == 0 {
            return Ok(0);
        }
        let (fraction, rest) = self.rest.split_at(1 + if self.micros { 6 } else { digits });
        self.rest = rest;
        Ok(fraction[1..]
            .bytes()
            .chain(std::iter::repeat(b'0'))
            .take(9)
            .fold(0, |n, digit| n * 10 + i32::from(digit - b'0')))
    }

    /// Parses a UTC offset, `Z` or `+01:00`, into seconds.
    fn parse_offset(&mut self) -> Result<i32, ParseError> {
        const NAME: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let whole = self.rest;
        let sign = match whole.as_bytes() {
            [b'+', _, _, b':', _, _, ..] => 1,
            [b'-', _, _, b':', _, _, ..] => -1,
            _ => return Err(self.cannot_parse_error(NAME)),
        };
        let two =
            |from: usize| whole.get(from..from + 2).filter(|two| two.bytes().all(|b| b.is_ascii_digit()))?.parse().ok();
        let (Some(hours), Some(minutes)): (Option<i32>, Option<i32>) = (two(1), two(4)) else {
            return Err(self.cannot_parse_error(NAME));
        };
        match (hours, minutes) {
            (25.., _) => Err(self.out_of_range_error("time zone offset hour")),
            (_, 61..) => Err(self.out_of_range_error("time zone offset minute")),
            _ => {
                self.rest = &whole[6..];
                Ok(sign * (hours * 60 + minutes) * 60)
            }
        }
    }

    fn cannot_parse_error(&self, part: &str) -> ParseError {
        let layout = if self.micros { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
        let (whole, rest) = (go_quote(self.whole), go_quote(self.rest));
        ParseError(format!("parsing time {whole} as {layout:?}: cannot parse {rest} as {part:?}"))
    }

    fn out_of_range_error(&self, part: &str) -> ParseError {
        ParseError(format!("parsing time {}: {part} out of range", go_quote(self.whole)))
    }
}

/// Returns the name of a layout element.
fn element_name(name: &str) -> &'static str {
    match name {
        "01" => "month",
        "02" => "day",
        "15" => "hour",
        "04" => "minute",
        "05" => "second",
        _ => "year",
    }
}

/// Quotes a text as Go's `time` package does: bytes that are not printable ASCII are escaped one by one.
fn go_quote(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        0x20..0x80 => char::from(byte).to_string(),
        other => format!("\\x{other:02x}"),
    };
    format!("\"{}\"", text.bytes().map(byte).collect::<String>())
}

/// Formats the age since `since` in upstream's short form; `<unknown>` if it is not a time.
pub fn format_age(since: Option<&str>, now: Timestamp) -> String {
    match since.and_then(parse) {
        Some(since) => human_duration(now.as_second() - since.as_second()),
        None => "<unknown>".to_owned(),
    }
}

/// Formats a duration in seconds in upstream's short form: `2m30s`, `5h`, `3d4h`.
pub fn human_duration(seconds: i64) -> String {
    let pair = |big: i64, unit: char, rest: i64, small: char| {
        if rest == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{rest}{small}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_like_go() {
        let good = [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05.5Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T3:04:05+01:30", "2020-01-02T01:34:05Z"),
            ("2020-02-29T23:59:59-24:60", "2020-03-02T00:59:59Z"),
        ];
        for (text, want) in good {
            assert_eq!(try_parse(text, false).map(format_seconds).as_deref(), Ok(want), "{text}");
        }
        assert_eq!(
            try_parse("2020-01-02T03:04:05.123456Z", true).map(format_micros).unwrap(),
            "2020-01-02T03:04:05.123456Z"
        );
        let bad = [
            ("x", "as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\""),
            ("2020-01-01", "as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\""),
            ("2020-1-1T00:00:00Z", "as \"2006-01-02T15:04:05Z07:00\": cannot parse \"1-1T00:00:00Z\" as \"01\""),
            ("2020-01-01T00:00:00", "as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"Z07:00\""),
        ];
        for (text, want) in bad {
            assert_eq!(try_parse(text, false), Err(ParseError(format!("parsing time {text:?} {want}"))));
        }
        let outside = [
            ("2020-13-01T00:00:00Z", "month out of range"),
            ("2021-02-29T00:00:00Z", "day out of range"),
            ("2020-01-01T25:00:00Z", "hour out of range"),
            ("2020-01-01T00:00:60Z", "second out of range"),
            ("2020-01-01T00:00:00+99:00", "time zone offset hour out of range"),
            ("2020-01-01T00:00:00Zx", "extra text: \"x\""),
        ];
        for (text, want) in outside {
            assert_eq!(try_parse(text, false), Err(ParseError(format!("parsing time {text:?}: {want}"))));
            assert!(!is_canonical(text));
        }
        assert!(is_canonical("2020-01-02T03:04:05Z") && !is_canonical("2020-01-02T03:04:05é"));
    }

    #[test]
    fn ages_are_formatted_like_upstream() {
        let cases = [(0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (600, "10m"), (3 * 3600 + 60, "3h1m")];
        for (seconds, want) in cases {
            assert_eq!(human_duration(seconds), want);
        }
        assert_eq!(human_duration(50 * 3600), "2d2h");
        assert_eq!(human_duration(-5), "<invalid>");
    }
}
