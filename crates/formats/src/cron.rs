//! Cron schedules: five fields or a descriptor such as `@daily`, and time zones.

use jiff::tz::TimeZone;

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

/// Validates a cron schedule; the error is upstream's message.
pub fn validate_schedule(schedule: &str) -> Result<(), ParseError> {
    let mut rest = schedule;
    let zoned = rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=");
    if let Some((_, after)) = rest.split_once(' ').filter(|_| zoned) {
        rest = after.trim();
    }
    if rest.starts_with('@') {
        return validate_descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(ParseError(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "))));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        text.split(',').filter(|part| !part.is_empty()).try_for_each(|part| validate_range(part, field))?;
    }
    Ok(())
}

/// Whether the time zone database has a zone with exactly this name; Go also accepts `Local`.
pub fn is_time_zone(name: &str) -> bool {
    name == "Local" || TimeZone::get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

fn validate_descriptor(text: &str) -> Result<(), ParseError> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        text => match text.strip_prefix("@every ") {
            Some(every) if duration::parse(every).is_some() => Ok(()),
            Some(every) => {
                Err(ParseError(format!("failed to parse duration {text}: time: invalid duration {every:?}")))
            }
            None => Err(ParseError(format!("unrecognized descriptor: {text}"))),
        },
    }
}

fn validate_range(text: &str, field: &CronField) -> Result<(), ParseError> {
    let parts: Vec<&str> = text.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match bounds[..] {
        ["*" | "?", ..] => (field.min, field.max),
        [one] => {
            let number = parse_number(one, field.names, field.min)?;
            (number, number)
        }
        [low, high] => (parse_number(low, field.names, field.min)?, parse_number(high, field.names, field.min)?),
        [low, ..] => {
            parse_number(low, field.names, field.min)?;
            return Err(ParseError(format!("too many hyphens: {text}")));
        }
        [] => (field.min, field.max),
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
    Ok(())
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
        ];
        for (schedule, why) in cases {
            assert_eq!(validate_schedule(schedule).unwrap_err().to_string(), why, "{schedule}");
        }
    }
}
