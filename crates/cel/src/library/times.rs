//! Accessors of timestamps and durations.

use jiff::civil::DateTime;

use super::Bodies;
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("getFullYear", |args| civil(args, |t| t.year().into(), None)),
    ("getMonth", |args| civil(args, |t| i64::from(t.month()) - 1, None)),
    ("getDate", |args| civil(args, |t| t.day().into(), None)),
    ("getDayOfMonth", |args| civil(args, |t| i64::from(t.day()) - 1, None)),
    ("getDayOfWeek", |args| civil(args, |t| t.weekday().to_sunday_zero_offset().into(), None)),
    ("getDayOfYear", |args| civil(args, |t| i64::from(t.day_of_year()) - 1, None)),
    ("getHours", |args| civil(args, |t| t.hour().into(), Some(3_600_000_000_000))),
    ("getMinutes", |args| civil(args, |t| t.minute().into(), Some(60_000_000_000))),
    ("getSeconds", |args| civil(args, |t| t.second().into(), Some(1_000_000_000))),
    ("getMilliseconds", |args| civil(args, |t| t.millisecond().into(), Some(1_000_000))),
];

/// Returns a component of a timestamp, in an optional time zone, or a duration in `unit`s.
fn civil<'a>(args: &mut [Value<'a>], part: fn(DateTime) -> i64, unit: Option<i64>) -> Result<Value<'a>, Error> {
    let (timestamp, zone) = match (args, unit) {
        ([Value::Duration(duration)], Some(unit)) => return Ok(Value::Int(duration.0 / unit)),
        ([Value::Timestamp(timestamp)], _) => (*timestamp, "UTC".into()),
        ([Value::Timestamp(timestamp), Value::String(zone)], _) => (*timestamp, zone.to_string()),
        _ => return Err(Error::no_such_overload()),
    };
    let east = timestamp.east(&zone).ok_or_else(|| Error::failed(format!("unknown time zone {zone}")))?;
    let civil = timestamp.civil(east).ok_or_else(|| Error::failed("timestamp overflow"))?;
    Ok(Value::Int(part(civil)))
}
