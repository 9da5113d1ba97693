//! Amounts that are a number or a part of all: `3` or `25%`.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { amount at_most_all not_none };

/// The faults of an amount.
fn amount(at: &At, e: &mut Errors) {
    if at.value.is_string() { at.form(e, names::percent) } else { at.nonnegative(e) }
}

fn percent(at: &At) -> Option<i64> {
    let text = at.value.as_str().filter(|text| names::percent(text).is_empty())?;
    text.trim_end_matches('%').parse().ok()
}

/// The number, of things or of hundredths.
pub(super) fn value(at: &At) -> i64 {
    match at.value {
        Value::String(text) => percent(at).unwrap_or_else(|| text.parse().unwrap_or(0)),
        value => value.as_i64().unwrap_or(0),
    }
}

/// A part of all is at most all.
fn at_most_all(at: &At, e: &mut Errors) {
    if percent(at).is_some_and(|percent| percent > 100) {
        at.invalid(e, "must not be greater than 100%");
    }
}

/// The amount as it is told; none is 0.
pub(super) fn shown(at: &At) -> Bad {
    if at.exists() { at.value.clone().into() } else { 0.into() }
}

fn not_none(at: &At, e: &mut Errors) {
    if value(at) == 0 {
        at.invalid_as(e, shown(at), "cannot be 0");
    }
}
