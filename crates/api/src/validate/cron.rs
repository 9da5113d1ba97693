//! The schedules of cron jobs, five fields or a word such as `@daily`, and their time zones.

use super::prelude::*;
use crate::duration;

/// A field: its least and greatest number, and names for numbers from the least on.
struct Field {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { min: 0, max: 59, names: &[] },
    Field { min: 0, max: 23, names: &[] },
    Field { min: 1, max: 31, names: &[] },
    Field { min: 1, max: 12, names: MONTHS },
    Field { min: 0, max: 6, names: DAYS },
];

/// The faults of a schedule. A time zone has a field of its own, except where the schedule had one before.
pub fn schedule(at: &At, e: &mut Errors) {
    if let Err(why) = check(at.text()) {
        at.invalid_text(e, why);
    }
    if !at.text().contains("TZ") {
        return;
    }
    let had_zone = at.before().text().contains("TZ");
    if had_zone && at.up(1).get("timeZone").exists() {
        at.invalid_text(e, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    } else if !had_zone {
        at.invalid_text(e, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

/// The faults of a time zone that is not the one before.
pub fn time_zone(at: &At, e: &mut Errors) {
    if at.is_change() && at.old == at.value {
        return;
    }
    if at.is_empty() {
        return at.invalid_text(e, "timeZone must be nil or non-empty string");
    }
    let part = |part: &str| {
        (1..=14).contains(&part.len())
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || ".-_+".contains(c))
    };
    if !at.text().split('/').all(part) {
        return at.invalid_text(e, format!("unknown time zone {}", at.text()));
    }
    if !is_known_zone(at.text()) {
        at.invalid_text(e, format!("unknown time zone {}", at.text()));
    }
    if at.text().eq_ignore_ascii_case("local") {
        let message = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        at.invalid_text(e, message);
    }
}

/// Areas of the time zone database, and its zones without an area. Which places an area has is not looked at.
fn is_known_zone(name: &str) -> bool {
    const AREAS: &str = "Africa America Antarctica Arctic Asia Atlantic Australia Brazil Canada Chile Etc Europe Indian Mexico \
        Pacific US";
    const ZONES: &str = "CET CST6CDT Cuba EET EST EST5EDT Egypt Eire Factory GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST Hongkong \
        Iceland Iran Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT NZ NZ-CHAT Navajo PRC PST8PDT Poland Portugal ROC ROK \
        Singapore Turkey UCT UTC Universal W-SU WET Zulu Local";
    let listed = |list: &str, name: &str| list.split_whitespace().any(|known| known == name);
    match name.split_once('/') {
        Some((area, place)) => listed(AREAS, area) && !place.is_empty(),
        None => listed(ZONES, name),
    }
}

/// What is wrong with a schedule, as upstream's parser says it.
fn check(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    let zoned = rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=");
    if let Some((_, after)) = rest.split_once(' ').filter(|_| zoned) {
        rest = after.trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        text.split(',').filter(|part| !part.is_empty()).try_for_each(|part| range(part, field))?;
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        text => match text.strip_prefix("@every ") {
            Some(every) if duration::parse(every).is_some() => Ok(()),
            Some(every) => Err(format!("failed to parse duration {text}: time: invalid duration {every:?}")),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

fn range(text: &str, field: &Field) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match bounds[..] {
        ["*" | "?", ..] => (field.min, field.max),
        [one] => {
            let number = number(one, field.names, field.min)?;
            (number, number)
        }
        [low, high] => (number(low, field.names, field.min)?, number(high, field.names, field.min)?),
        [low, ..] => {
            number(low, field.names, field.min)?;
            return Err(format!("too many hyphens: {text}"));
        }
        [] => (field.min, field.max),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if bounds.len() == 1 {
                end = field.max;
            }
            number(step, &[], 0)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < field.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", field.min));
    }
    if end > field.max {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", field.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number(text: &str, names: &[&str], first: u64) -> Result<u64, String> {
    if let Some(at) = names.iter().position(|name| *name == text.to_lowercase()) {
        return Ok(first + at as u64);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let why = if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        "invalid syntax"
    } else {
        match text.parse::<i64>() {
            Ok(number) if number < 0 => return Err(format!("negative number ({number}) not allowed: {text}")),
            Ok(number) => return Ok(number.unsigned_abs()),
            Err(_) => "value out of range",
        }
    };
    Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules_are_read_as_upstream_reads_them() {
        for right in
            ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@daily", "@every 1h30m", "TZ=UTC 0 0 * * ?", "5/15 * * * *"]
        {
            assert_eq!(check(right), Ok(()), "{right}");
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
            assert_eq!(check(schedule).unwrap_err(), why, "{schedule}");
        }
    }
}
