//! Validation of CronJob schedules (five fields or a macro such as `@daily`) and time zones.

use super::prelude::*;
use formats::cron;

/// Validates a schedule. A time zone belongs in its own field, except where the stored schedule has one.
pub fn validate_schedule(at: &FieldCursor, e: &mut ErrorList) {
    if let Err(why) = cron::validate_schedule(at.text()) {
        at.invalid_text(e, why.0);
    }
    if !at.text().contains("TZ") {
        return;
    }
    let had_zone = at.old_cursor().text().contains("TZ");
    if had_zone && at.ancestor(1).get("timeZone").exists() {
        at.invalid_text(e, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    } else if !had_zone {
        at.invalid_text(e, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

/// Validates a changed time zone.
pub fn validate_time_zone(at: &FieldCursor, e: &mut ErrorList) {
    if at.is_update() && at.old == at.value {
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
    if !cron::is_time_zone(at.text()) {
        at.invalid_text(e, format!("unknown time zone {}", at.text()));
    }
    if at.text().eq_ignore_ascii_case("local") {
        let message = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        at.invalid_text(e, message);
    }
}
