//! Accessors of timestamps and durations.

use jiff::civil::DateTime;

use super::FunctionBodies;
use crate::{error::EvalError, value::Value};

pub(super) const BODIES: FunctionBodies = &[
    ("getFullYear", |args| timestamp_component(args, |t| t.year().into(), None)),
    ("getMonth", |args| timestamp_component(args, |t| i64::from(t.month()) - 1, None)),
    ("getDate", |args| timestamp_component(args, |t| t.day().into(), None)),
    ("getDayOfMonth", |args| timestamp_component(args, |t| i64::from(t.day()) - 1, None)),
    ("getDayOfWeek", |args| timestamp_component(args, |t| t.weekday().to_sunday_zero_offset().into(), None)),
    ("getDayOfYear", |args| timestamp_component(args, |t| i64::from(t.day_of_year()) - 1, None)),
    ("getHours", |args| timestamp_component(args, |t| t.hour().into(), Some(3_600_000_000_000))),
    ("getMinutes", |args| timestamp_component(args, |t| t.minute().into(), Some(60_000_000_000))),
    ("getSeconds", |args| timestamp_component(args, |t| t.second().into(), Some(1_000_000_000))),
    ("getMilliseconds", |args| timestamp_component(args, |t| t.millisecond().into(), Some(1_000_000))),
];

/// Returns a component of a timestamp, in an optional time zone, or a duration in `unit`s.
fn timestamp_component<'a>(
    args: &mut [Value<'a>],
    part: fn(DateTime) -> i64,
    unit: Option<i64>,
) -> Result<Value<'a>, EvalError> {
    let (timestamp, zone) = match (args, unit) {
        ([Value::Duration(duration)], Some(unit)) => return Ok(Value::Int(duration.0 / unit)),
        ([Value::Timestamp(timestamp)], _) => (*timestamp, "UTC".into()),
        ([Value::Timestamp(timestamp), Value::String(zone)], _) => (*timestamp, zone.to_string()),
        _ => return Err(EvalError::no_such_overload()),
    };
    let east = timestamp.utc_offset(&zone).ok_or_else(|| EvalError::new(format!("unknown time zone {zone}")))?;
    let civil = timestamp.to_civil(east).ok_or_else(|| EvalError::new("timestamp overflow"))?;
    Ok(Value::Int(part(civil)))
}
