//! Quantities such as `1.5Gi`. Like upstream's they are either a whole number with a power of ten, or a decimal when that
//! has no room; only the former can be integers.

use std::cmp::Ordering;

use super::{Bodies, native::Native, semver, text};
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("quantity", |args| Ok(Native::Quantity(Quantity::parse(text(&args[0])?).map_err(Error::failed)?).value())),
    ("isQuantity", |args| Ok(Value::Bool(Quantity::parse(text(&args[0])?).is_ok()))),
    ("sign", |args| Ok(Value::Int(of(&args[0])?.nanos.signum() as i64))),
    ("isInteger", |args| Ok(Value::Bool(of(&args[0])?.integer().is_some()))),
    ("asInteger", |args| {
        of(&args[0])?.integer().map(Value::Int).ok_or_else(|| Error::failed("cannot convert value to integer"))
    }),
    ("asApproximateFloat", |args| Ok(Value::Double(of(&args[0])?.float()))),
    ("add", |args| Ok(Native::Quantity(of(&args[0])?.add(other(&args[1])?)).value())),
    ("sub", |args| Ok(Native::Quantity(of(&args[0])?.add(other(&args[1])?.negative())).value())),
    ("isGreaterThan", |args| compared(args, |order| Value::Bool(order == Ordering::Greater))),
    ("isLessThan", |args| compared(args, |order| Value::Bool(order == Ordering::Less))),
    ("compareTo", |args| compared(args, |order| Value::Int(order as i64))),
];

const SUFFIXES: [(&str, u32, i32); 16] = [
    ("", 10, 0),
    ("n", 10, -9),
    ("u", 10, -6),
    ("m", 10, -3),
    ("k", 10, 3),
    ("M", 10, 6),
    ("G", 10, 9),
    ("T", 10, 12),
    ("P", 10, 15),
    ("E", 10, 18),
    ("Ki", 2, 10),
    ("Mi", 2, 20),
    ("Gi", 2, 30),
    ("Ti", 2, 40),
    ("Pi", 2, 50),
    ("Ei", 2, 60),
];

const WRONG: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC: &str = "unable to parse numeric part of quantity";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// An amount.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    /// Value and power of ten; `None` when it is kept as a decimal.
    small: Option<(i64, i32)>,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

fn of(value: &Value<'_>) -> Result<Quantity, Error> {
    match value {
        Value::Native(native) => match &**native {
            Native::Quantity(quantity) => Ok(*quantity),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

/// What is added or taken away: another quantity or a whole number.
fn other(value: &Value<'_>) -> Result<Quantity, Error> {
    match value {
        Value::Int(number) => Ok(Quantity { nanos: i128::from(*number) * 1_000_000_000, small: Some((*number, 0)) }),
        other => of(other),
    }
}

/// Quantities and versions are compared by the same functions.
fn compared<'a>(args: &[Value<'a>], result: fn(Ordering) -> Value<'a>) -> Result<Value<'a>, Error> {
    if let (Ok(a), Ok(b)) = (semver::of(&args[0]), semver::of(&args[1])) {
        return Ok(result(a.compare(b)));
    }
    Ok(result(of(&args[0])?.nanos.cmp(&of(&args[1])?.nanos)))
}

impl Quantity {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(WRONG);
        }
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let (base, exponent) = interpret(suffix)?;
        if whole.is_empty() && fraction.is_empty() && !rest.is_empty() {
            return Err(NUMERIC);
        }
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let amount = Self::small(whole, fraction, base, exponent).map(|value| if negative { -value } else { value });
        let scale = if base == 2 { 0 } else { exponent - fraction.len() as i32 };
        match amount {
            Some(value) => Ok(Self { nanos: scaled(i128::from(value), scale), small: Some((value, scale)) }),
            None => Self::decimal(whole, fraction, base, exponent, negative),
        }
    }

    /// The amount as a number with a power of ten, if upstream keeps it as one.
    fn small(whole: &str, fraction: &str, base: u32, exponent: i32) -> Option<i64> {
        let digits = (whole.len() + fraction.len()) as i32;
        if base == 10 {
            let fits = 18 - digits >= 0 && exponent - fraction.len() as i32 >= -9;
            return if fits { format!("{whole}{fraction}").parse().ok() } else { None };
        }
        let precision = 15 - whole.len() as i32 - exponent * 3 / 10 - 1;
        if !fraction.is_empty() || precision < 0 {
            return None;
        }
        whole.parse::<i64>().ok()?.checked_mul(1i64.checked_shl(exponent as u32)?)
    }

    /// As a decimal, rounded up to billionths, the binary ones at most 2⁶³-1.
    fn decimal(whole: &str, fraction: &str, base: u32, exponent: i32, negative: bool) -> Result<Self, &'static str> {
        let digits = format!("{whole}{fraction}");
        let mut value: i128 =
            digits.get(..36.min(digits.len())).and_then(|digits| digits.parse().ok()).ok_or(NUMERIC)?;
        let mut scale = -(fraction.len() as i32) + (digits.len() - 36.min(digits.len())) as i32;
        if base == 2 {
            value = value.saturating_mul(1 << exponent);
        } else {
            scale = scale.saturating_add(exponent);
        }
        let mut nanos = scaled(value, scale);
        if base == 2 {
            nanos = nanos.min(i128::from(i64::MAX) * 1_000_000_000);
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, small: None })
    }

    fn integer(self) -> Option<i64> {
        let (value, scale) = self.small?;
        if scale < 0 {
            return None;
        }
        value.checked_mul(10i64.checked_pow(scale as u32)?)
    }

    fn float(self) -> f64 {
        match self.small {
            Some((value, scale)) => value as f64 * 10f64.powi(scale),
            None => self.nanos as f64 / 1e9,
        }
    }

    fn negative(self) -> Self {
        let small = self.small.and_then(|(value, scale)| Some((value.checked_neg()?, scale)));
        Self { nanos: -self.nanos, small }
    }

    fn add(self, other: Self) -> Self {
        let nanos = self.nanos.saturating_add(other.nanos);
        let (Some(a), Some(b)) = (self.small, other.small) else { return Self { nanos, small: None } };
        if b.0 == 0 || a.0 == 0 {
            return Self { nanos, small: Some(if b.0 == 0 { a } else { b }) };
        }
        let scale = a.1.min(b.1);
        let at = |(value, from): (i64, i32)| value.checked_mul(10i64.checked_pow((from - scale) as u32)?);
        let sum = at(a).and_then(|a| a.checked_add(at(b)?));
        Self { nanos, small: sum.map(|sum| (sum, scale)) }
    }
}

/// Billionths of a value times a power of ten; what is lost is rounded away from zero.
fn scaled(value: i128, scale: i32) -> i128 {
    let power = scale.saturating_add(9);
    if value == 0 {
        return 0;
    }
    if power >= 0 {
        return 10i128.checked_pow(power as u32).and_then(|factor| value.checked_mul(factor)).unwrap_or(i128::MAX);
    }
    let Some(divisor) = 10i128.checked_pow(power.unsigned_abs()) else { return value.signum() };
    let (whole, rest) = (value / divisor, value % divisor);
    if rest == 0 { whole } else { whole + value.signum() }
}

fn interpret(suffix: &str) -> Result<(u32, i32), &'static str> {
    if let Some((_, base, exponent)) = SUFFIXES.iter().find(|(name, _, _)| *name == suffix) {
        return Ok((*base, *exponent));
    }
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(WRONG);
    }
    match suffix.strip_prefix(['e', 'E']) {
        Some(exponent) => Ok((10, exponent.parse().map_err(|_| SUFFIX)?)),
        None => Err(SUFFIX),
    }
}
