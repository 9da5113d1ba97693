//! Timestamps and durations, parsed and formatted as Go does, from year 1 to 9999.

use std::fmt;

use jiff::{civil, tz};

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since the Unix epoch.
    pub seconds: i64,
    /// Nanoseconds past the second.
    pub nanos: u32,
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub i64);

const NANOS: i128 = 1_000_000_000;
const EPOCH: civil::DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);
const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

impl Timestamp {
    /// Go's zero time.
    pub(crate) const ZERO: Self = Self { seconds: MIN_SECONDS, nanos: 0 };

    pub(crate) fn total_nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    pub(crate) fn from_nanos(nanos: i128) -> Option<Self> {
        let seconds = i64::try_from(nanos.div_euclid(NANOS)).ok()?;
        Some(Self { seconds, nanos: nanos.rem_euclid(NANOS) as u32 }).filter(|timestamp| timestamp.is_valid())
    }

    /// Whether the timestamp is within the supported years.
    pub(crate) fn is_valid(self) -> bool {
        (MIN_SECONDS..=MAX_SECONDS).contains(&self.seconds)
    }

    /// Returns the date and time of day at a UTC offset in seconds.
    pub(crate) fn to_civil(self, east: i64) -> Option<civil::DateTime> {
        EPOCH.checked_add(jiff::SignedDuration::new(self.seconds + east, self.nanos as i32)).ok()
    }

    /// Returns the UTC offset of a time zone at this timestamp, in seconds; `None` for an invalid zone. A zone is a
    /// name or `+hh:mm`.
    pub(crate) fn utc_offset(self, zone: &str) -> Option<i64> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let hours: i64 = hours.parse().ok()?;
            let minutes: i64 = minutes.parse().ok()?;
            let minutes = if zone.starts_with('-') { -minutes } else { minutes };
            return Some((hours * 60 + minutes) * 60);
        }
        if matches!(zone, "" | "UTC") {
            return Some(0);
        }
        let zone = tz::TimeZone::get(zone).ok()?;
        // Clamped to jiff's range: the last days use the UTC offset of the days before.
        let at = jiff::Timestamp::from_second(self.seconds.min(MAX_SECONDS - 200_000)).ok()?;
        Some(i64::from(zone.to_offset(at).seconds()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(t) = self.to_civil(0) else { return f.write_str("invalid") };
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            t.year(),
            t.month(),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        )?;
        if self.nanos != 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Formats the duration in seconds, as `string()` does.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0 as f64 / 1e9)
    }
}

impl Duration {
    /// Formats the duration as Go does: `1h30m0s`.
    pub fn go_format(self) -> String {
        formats::duration::format(self.0)
    }
}

/// Parses a duration as Go does: `-1.5h30m`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    formats::duration::parse(text).map(Duration)
}

/// Parses a duration in a document, which may also use days, weeks and spelled-out units.
pub(crate) fn parse_lenient_duration(text: &str) -> Option<Duration> {
    formats::duration::parse_lenient(text).map(Duration)
}

/// Parses an RFC 3339 timestamp.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't'])?;
    let at = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(at);
    let east = match zone {
        "Z" | "z" => 0,
        _ => parse_offset(zone, true)?,
    };
    assemble_timestamp(date, time, east)
}

/// Parses a `date`.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    (text.len() == 10).then(|| assemble_timestamp(text, "00:00:00", 0)).flatten()
}

/// Parses a `date-time` of a document: RFC 3339, or without seconds, zone or the colon in its offset.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if let Some(timestamp) = parse_timestamp(text) {
        return Some(timestamp);
    }
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', ' '])?;
    let (time, zone) = rest.split_at(rest.find(['Z', '+', '-']).unwrap_or(rest.len()));
    let time = if time.len() == 5 { format!("{time}:00") } else { time.into() };
    let east = match zone {
        "" | "Z" => 0,
        _ => parse_offset(zone, false)?,
    };
    assemble_timestamp(date, &time, east)
}

fn parse_offset(zone: &str, colon: bool) -> Option<i64> {
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = &zone[1..];
    let (hours, minutes) = if colon { digits.split_once(':')? } else { digits.split_at_checked(2)? };
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (parse_number(hours)?, parse_number(minutes)?);
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn parse_number(text: &str) -> Option<i64> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn assemble_timestamp(date: &str, time: &str, east: i64) -> Option<Timestamp> {
    let part = |text: &str, at: usize, len: usize| parse_number(text.get(at..at + len)?);
    let mark = |text: &str, at: usize, c: u8| (text.as_bytes().get(at) == Some(&c)).then_some(());
    mark(date, 4, b'-')?;
    mark(date, 7, b'-')?;
    mark(time, 2, b':')?;
    mark(time, 5, b':')?;
    let day = civil::Date::new(part(date, 0, 4)? as i16, part(date, 5, 2)? as i8, part(date, 8, 2)? as i8).ok()?;
    let (hour, minute, second) = (part(time, 0, 2)?, part(time, 3, 2)?, part(time, 6, 2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = &time[8..];
    let nanos = match fraction.strip_prefix(['.', ',']) {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) => {
            format!("{:0<9.9}", digits).parse().ok()?
        }
        Some(_) => return None,
        None if fraction.is_empty() => 0,
        None => return None,
    };
    let midnight = day.to_datetime(civil::Time::midnight()).duration_since(EPOCH).as_secs();
    Some(Timestamp { seconds: midnight + hour * 3600 + minute * 60 + second - east, nanos })
}
