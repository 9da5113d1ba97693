//! Cron schedules: five fields or a descriptor such as `@daily`, their times, and time zones.

use jiff::{
    Timestamp, ToSpan,
    civil::{DateTime, Time},
    tz::TimeZone,
};

use crate::{ParseError, duration};

/// A schedule field: its bounds, and the names of its values, starting at the lower bound.
struct CronField {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [CronField; 5] = [
    CronField { min: 0, max: 59, names: &[] },
    CronField { min: 0, max: 23, names: &[] },
    CronField { min: 1, max: 31, names: &[] },
    CronField { min: 1, max: 12, names: MONTHS },
    CronField { min: 0, max: 6, names: DAYS },
];

/// Bit of a field that was written with a star, beside those of its values.
const STAR: u64 = 1 << 63;
/// Years that are searched for the next time.
const YEAR_LIMIT: i16 = 5;

/// A cron schedule, with the meaning of the library that upstream uses (robfig/cron, version 3).
#[derive(Clone, Debug)]
pub struct CronSchedule(ScheduleKind);

#[derive(Clone, Debug)]
enum ScheduleKind {
    /// `@every`: a constant delay in whole seconds.
    Every(i64),
    Fields(CronFields),
}

/// Values of the fields as bit sets, and the time zone that they are meant in.
#[derive(Clone, Debug)]
struct CronFields {
    minute: u64,
    hour: u64,
    day_of_month: u64,
    month: u64,
    day_of_week: u64,
    zone: TimeZone,
}

/// Validates a cron schedule; the error is upstream's message.
pub fn validate_schedule(schedule: &str) -> Result<(), ParseError> {
    CronSchedule::parse(schedule).map(drop)
}

/// Whether the time zone database has a zone with exactly this name; Go also accepts `Local`.
pub fn is_time_zone(name: &str) -> bool {
    !name.is_empty() && load_time_zone(name).is_ok()
}

/// Returns a time zone by name as Go does: `UTC` for an empty name, `Local` for that of the machine.
pub fn load_time_zone(name: &str) -> Result<TimeZone, ParseError> {
    match name {
        "" | "UTC" => Ok(TimeZone::UTC),
        "Local" => Ok(TimeZone::system()),
        _ if name.contains("..") || name.starts_with(['/', '\\']) => {
            Err(ParseError("time: invalid location name".into()))
        }
        _ => {
            let zone = TimeZone::get(name).ok().filter(|zone| zone.iana_name() == Some(name));
            zone.ok_or_else(|| ParseError(format!("unknown time zone {name}")))
        }
    }
}

impl CronSchedule {
    /// Parses five fields or a descriptor, which `TZ=` or `CRON_TZ=` may precede; the error is upstream's message.
    /// Without a time zone, that of the machine is meant.
    pub fn parse(schedule: &str) -> Result<Self, ParseError> {
        if schedule.is_empty() {
            return Err(ParseError("empty spec string".into()));
        }
        let (zone, rest) = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
            None => (TimeZone::system(), schedule),
            Some(zoned) => {
                let Some((name, rest)) = zoned.split_once(' ') else {
                    let message = "invalid schedule format: runtime error: slice bounds out of range [:-1]";
                    return Err(ParseError(message.into()));
                };
                let zone = load_time_zone(name)
                    .map_err(|error| ParseError(format!("provided bad location {name}: {error}")))?;
                (zone, rest.trim())
            }
        };
        match rest.starts_with('@') {
            true => parse_descriptor(rest, zone),
            false => parse_fields(rest, zone),
        }
    }

    /// Returns the first time after `time`; `None` if there is none within five years.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            ScheduleKind::Every(seconds) => Timestamp::from_second(time.as_second().checked_add(*seconds)?).ok(),
            ScheduleKind::Fields(fields) => fields.next_after(time),
        }
    }
}

impl CronFields {
    /// Increments the fields from the month down to the minute until each matches, starting over when one wraps around.
    /// The detours around transitions of daylight saving time are those of the library.
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut at = time.as_second().checked_add(1)?;
        let limit = self.civil(at)?.year().checked_add(YEAR_LIMIT)?;
        // Whether the lower fields have been reset.
        let mut reset = false;
        'wrap: loop {
            if self.civil(at)?.year() > limit {
                return None;
            }
            while !has_bit(self.month, self.civil(at)?.month()) {
                if !reset {
                    at = self.instant(self.civil(at)?.date().first_of_month().to_datetime(Time::midnight()))?;
                    reset = true;
                }
                at = self.instant(self.civil(at)?.checked_add(1.month()).ok()?)?;
                if self.civil(at)?.month() == 1 {
                    continue 'wrap;
                }
            }
            while !self.matches_day(self.civil(at)?) {
                if !reset {
                    at = self.instant(self.civil(at)?.date().to_datetime(Time::midnight()))?;
                    reset = true;
                }
                at = self.instant(self.civil(at)?.checked_add(1.day()).ok()?)?;
                // Midnight may not exist on this day.
                let hour = i64::from(self.civil(at)?.hour());
                at += if hour > 12 { 24 - hour } else { -hour } * 3600;
                if self.civil(at)?.day() == 1 {
                    continue 'wrap;
                }
            }
            while !has_bit(self.hour, self.civil(at)?.hour()) {
                if !reset {
                    let civil = self.civil(at)?;
                    at = self.instant(civil.date().at(civil.hour(), 0, 0, 0))?;
                    reset = true;
                }
                at += 3600;
                if self.civil(at)?.hour() == 0 {
                    continue 'wrap;
                }
            }
            while !has_bit(self.minute, self.civil(at)?.minute()) {
                if !reset {
                    at -= at.rem_euclid(60);
                    reset = true;
                }
                at += 60;
                if self.civil(at)?.minute() == 0 {
                    continue 'wrap;
                }
            }
            // The second is zero.
            match i64::from(self.civil(at)?.second()) {
                0 => return Timestamp::from_second(at).ok(),
                second => at += 60 - second,
            }
            reset = true;
        }
    }

    fn civil(&self, second: i64) -> Option<DateTime> {
        Some(self.zone.to_datetime(Timestamp::from_second(second).ok()?))
    }

    /// Returns the instant of a local time. In a gap or a fold it is the one that Go's `time.Date` chooses.
    fn instant(&self, local: DateTime) -> Option<i64> {
        let as_utc = TimeZone::UTC.to_timestamp(local).ok()?.as_second();
        let offset_at = |second| Some(i64::from(self.zone.to_offset(Timestamp::from_second(second).ok()?).seconds()));
        let first_guess = offset_at(as_utc)?;
        match first_guess {
            0 => Some(as_utc),
            offset => Some(as_utc - offset_at(as_utc - offset)?),
        }
    }

    /// Whether the day matches: both fields if one of them is a star, else either.
    fn matches_day(&self, local: DateTime) -> bool {
        let of_month = has_bit(self.day_of_month, local.day());
        let of_week = has_bit(self.day_of_week, local.weekday().to_sunday_zero_offset());
        match (self.day_of_month | self.day_of_week) & STAR {
            0 => of_month || of_week,
            _ => of_month && of_week,
        }
    }
}

fn has_bit(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits >> value & 1 == 1)
}

fn parse_fields(text: &str, zone: TimeZone) -> Result<CronSchedule, ParseError> {
    let texts: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day_of_month, month, day_of_week] = texts[..] else {
        return Err(ParseError(format!("expected exactly 5 fields, found {}: [{}]", texts.len(), texts.join(" "))));
    };
    let [minutes, hours, days_of_month, months, days_of_week] = &FIELDS;
    Ok(CronSchedule(ScheduleKind::Fields(CronFields {
        minute: parse_field(minute, minutes)?,
        hour: parse_field(hour, hours)?,
        day_of_month: parse_field(day_of_month, days_of_month)?,
        month: parse_field(month, months)?,
        day_of_week: parse_field(day_of_week, days_of_week)?,
        zone,
    })))
}

fn parse_descriptor(text: &str, zone: TimeZone) -> Result<CronSchedule, ParseError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        text => {
            let every = text.strip_prefix("@every ");
            let every = every.ok_or_else(|| ParseError(format!("unrecognized descriptor: {text}")))?;
            let nanoseconds = duration::try_parse(every)
                .map_err(|error| ParseError(format!("failed to parse duration {text}: {error}")))?;
            return Ok(CronSchedule(ScheduleKind::Every((nanoseconds / 1_000_000_000).max(1))));
        }
    };
    parse_fields(fields, zone)
}

fn parse_field(text: &str, field: &CronField) -> Result<u64, ParseError> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| parse_range(part, field)).try_fold(0, |bits, part| Ok(bits | part?))
}

/// Parses `*`, a value or a range, with an optional step, into the bits of its values.
fn parse_range(text: &str, field: &CronField) -> Result<u64, ParseError> {
    let parts: Vec<&str> = text.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match bounds[..] {
        ["*" | "?", ..] | [] => (field.min, field.max),
        [one] => {
            let number = parse_number(one, field.names, field.min)?;
            (number, number)
        }
        [low, high] => (parse_number(low, field.names, field.min)?, parse_number(high, field.names, field.min)?),
        [low, ..] => {
            parse_number(low, field.names, field.min)?;
            return Err(ParseError(format!("too many hyphens: {text}")));
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if bounds.len() == 1 {
                end = field.max;
            }
            parse_number(step, &[], 0)?
        }
        _ => return Err(ParseError(format!("too many slashes: {text}"))),
    };
    if start < field.min {
        return Err(ParseError(format!("beginning of range ({start}) below minimum ({}): {text}", field.min)));
    }
    if end > field.max {
        return Err(ParseError(format!("end of range ({end}) above maximum ({}): {text}", field.max)));
    }
    if start > end {
        return Err(ParseError(format!("beginning of range ({start}) beyond end of range ({end}): {text}")));
    }
    if step == 0 {
        return Err(ParseError(format!("step of range should be a positive number: {text}")));
    }
    let star = if matches!(bounds.first(), Some(&("*" | "?"))) && step == 1 { STAR } else { 0 };
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((start..=end).step_by(step).fold(star, |bits, value| bits | 1 << value))
}

fn parse_number(text: &str, names: &[&str], first: u64) -> Result<u64, ParseError> {
    if let Some(at) = names.iter().position(|name| *name == text.to_lowercase()) {
        return Ok(first + at as u64);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let why = if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        "invalid syntax"
    } else {
        match text.parse::<i64>() {
            Ok(number) if number < 0 => {
                return Err(ParseError(format!("negative number ({number}) not allowed: {text}")));
            }
            Ok(number) => return Ok(number.unsigned_abs()),
            Err(_) => "value out of range",
        }
    };
    Err(ParseError(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zone_names_are_exact() {
        for (name, known) in
            [("Europe/Berlin", true), ("UTC", true), ("Europe/Nowhere", false), ("utc", false), ("", false)]
        {
            assert_eq!(is_time_zone(name), known, "{name}");
        }
    }

    /// Checks the time after another, as the schedule's library computes it.
    fn check_next(schedule: &str, after: &str, expected: &str) {
        let schedule_of = CronSchedule::parse(schedule).unwrap();
        let next = schedule_of.next_after(after.parse().unwrap());
        assert_eq!(next, (!expected.is_empty()).then(|| expected.parse().unwrap()), "{schedule} after {after}");
    }

    #[test]
    fn next_time_is_found() {
        let check = |schedule: &str, after, expected| check_next(&format!("TZ=UTC {schedule}"), after, expected);
        check("* * * * *", "2030-01-01T00:00:00Z", "2030-01-01T00:01:00Z");
        check("* * * * *", "2030-01-01T00:00:59.5Z", "2030-01-01T00:01:00Z");
        check("* * * * *", "2030-12-31T23:59:30Z", "2031-01-01T00:00:00Z");
        check("30 6-16/4 * * 1-5", "2030-01-04T15:00:00Z", "2030-01-07T06:30:00Z");
        check("0 0 29 2 *", "2029-03-01T00:00:00Z", "2032-02-29T00:00:00Z");
        check("59 23 31 2 *", "2030-01-01T00:00:00Z", "");
        check("0 12 13 * fri", "2030-01-01T00:00:00Z", "2030-01-04T12:00:00Z");
        check("0 12 13 * *", "2030-01-01T00:00:00Z", "2030-01-13T12:00:00Z");
        check("0 12 */2 * fri", "2030-01-01T12:00:00Z", "2030-01-03T12:00:00Z");
        check("5/15 * * * *", "2030-01-01T00:21:00Z", "2030-01-01T00:35:00Z");
        check("@weekly", "2030-01-01T00:00:00Z", "2030-01-06T00:00:00Z");
        check("@yearly", "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z");
        check_next("@every 1h30m0.9s", "2030-01-01T00:00:01.5Z", "2030-01-01T01:30:01Z");
        check_next("@every 1ms", "2030-01-01T00:00:01Z", "2030-01-01T00:00:02Z");
    }

    #[test]
    fn daylight_saving_time_is_respected() {
        // The hour from 02:00 does not exist on 2030-03-10 and happens twice on 2030-11-03.
        check_next("TZ=America/New_York 30 2 * * *", "2030-03-10T00:00:00-05:00", "2030-03-11T02:30:00-04:00");
        check_next("TZ=America/New_York 0 0 * * *", "2030-03-10T00:30:00-05:00", "2030-03-11T00:00:00-04:00");
        check_next("TZ=America/New_York 30 1 * * *", "2030-11-03T00:00:00-04:00", "2030-11-03T01:30:00-04:00");
        check_next("CRON_TZ=Asia/Kolkata 15 9 * * *", "2030-01-01T00:00:00Z", "2030-01-01T03:45:00Z");
        // Midnight did not exist in Sao Paulo on 2018-11-04.
        check_next("TZ=America/Sao_Paulo 0 9 5 11 *", "2018-11-03T12:00:00Z", "2018-11-05T11:00:00Z");
    }

    #[test]
    fn schedules_are_validated_like_upstream() {
        for right in
            ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@daily", "@every 1h30m", "TZ=UTC 0 0 * * ?", "5/15 * * * *"]
        {
            assert_eq!(validate_schedule(right), Ok(()), "{right}");
        }
        let cases = [
            ("nope", "expected exactly 5 fields, found 1: [nope]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
            ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
            ("", "empty spec string"),
        ];
        for (schedule, why) in cases {
            assert_eq!(validate_schedule(schedule).unwrap_err().to_string(), why, "{schedule}");
        }
    }
}
