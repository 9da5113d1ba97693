//! Validates numbers: range of the format, minimum, maximum and multiples. Integers are compared as integers.

use api::{
    Value,
    validate::{FieldError, FieldErrorType},
};

use super::{Check, Outcome};
use crate::schema::{Bounds, Kind, Node};

/// A number as Go decodes it.
#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Check<'_> {
    pub(super) fn number(&self, node: &Node, bounds: &Bounds, value: &Value, path: &str) -> Outcome {
        let mut out = Outcome { passed: 2, ..Outcome::default() };
        let number = match value.as_i64() {
            Some(number) => Number::Int(number),
            None => Number::Float(value.as_f64().unwrap_or_default()),
        };
        let range = |out: &mut Outcome, number: Number, what: &str| match self.range(node, number, what, path) {
            Some(fault) => {
                out.add(fault);
                false
            }
            None => true,
        };
        range(&mut out, number, "Checked");
        if let Some(factor) = bounds.multiple_of {
            let native = range(&mut out, Number::Float(factor), "MultipleOf");
            out.errors.extend(self.multiple(value, number, factor, native, path));
        }
        if let Some(least) = bounds.minimum {
            let native = range(&mut out, Number::Float(least), "Minimum boundary");
            let strict = bounds.exclusive_minimum;
            let (under, shown) = compared(number, least, native, |a, b| a < b || strict && a == b);
            if under {
                let equal = if strict { "" } else { " or equal to" };
                out.add(self.invalid(path, value.clone(), &format!("should be greater than{equal} {shown}")));
            }
        }
        if let Some(most) = bounds.maximum {
            let native = range(&mut out, Number::Float(most), "Maximum boundary");
            let strict = bounds.exclusive_maximum;
            let (over, shown) = compared(number, most, native, |a, b| a > b || strict && a == b);
            if over {
                let equal = if strict { "" } else { " or equal to" };
                out.add(self.invalid(path, value.clone(), &format!("should be less than{equal} {shown}")));
            }
        }
        out
    }

    /// Checks that a number fits the type and format of the schema.
    fn range(&self, node: &Node, number: Number, what: &str, path: &str) -> Option<FieldError> {
        let format = &*node.bounds().format;
        let single = if node.int_or_string { Kind::Any } else { node.kind };
        let (fits, format) = match (single, number) {
            (Kind::Integer, Number::Int(number)) => (format != "int32" || i32::try_from(number).is_ok(), format),
            (Kind::Integer, Number::Float(number)) => {
                let (least, most) =
                    if format == "int32" { (-2_147_483_648.0, 2_147_483_647.0) } else { (-9.3e18, 9.2e18) };
                (number.fract() == 0.0 && (least..=most).contains(&number), format)
            }
            (Kind::Number, number) if format == "float" => (as_float(number).abs() <= f64::from(f32::MAX), format),
            _ => (true, ""),
        };
        let name = single.name();
        (!fits).then(|| {
            self.composite(match format {
                "" => format!("{what} value must be of type {name} (default format) in {path}"),
                format => format!("{what} value must be of type {name} with format {format} in {path}"),
            })
        })
    }

    fn multiple(&self, value: &Value, number: Number, factor: f64, native: bool, path: &str) -> Option<FieldError> {
        let (fits, positive, shown) = match number {
            Number::Int(number) if native => {
                let factor = factor as i64;
                (factor > 0 && number % factor == 0, factor > 0, factor.to_string())
            }
            number => {
                let number = as_float(number);
                let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
                (is_whole(quotient), factor > 0.0, go_float(factor))
            }
        };
        if !positive {
            let message = format!("factor MultipleOf declared for {path} must be positive: {shown}");
            let bad = shown.parse::<f64>().map_or_else(|_| shown.clone().into(), |number| Value::from(number as i64));
            return Some(self.fault(path, FieldErrorType::Invalid(bad.into()), message));
        }
        (!fits).then(|| self.invalid(path, value.clone(), &format!("should be a multiple of {shown}")))
    }
}

fn as_float(number: Number) -> f64 {
    match number {
        Number::Int(number) => number as f64,
        Number::Float(number) => number,
    }
}

/// Compares as integers if the bound is one, and returns the bound as it was compared.
fn compared(number: Number, bound: f64, native: bool, test: impl Fn(f64, f64) -> bool) -> (bool, String) {
    match number {
        Number::Int(number) if native => {
            let bound = bound as i64;
            // Integers beyond the precision of floats are compared by their order.
            let order = number.cmp(&bound) as i8;
            (test(f64::from(order), 0.0), bound.to_string())
        }
        number => (test(as_float(number), bound), go_float(bound)),
    }
}

/// Whether a float is an integer, within floating-point precision.
fn is_whole(number: f64) -> bool {
    const EPSILON: f64 = 1e-9;
    if number.is_nan() || number.is_infinite() || number.abs() > 9_007_199_254_740_991.0 {
        return false;
    }
    let whole = number.trunc();
    let difference = (number - whole).abs();
    number == whole
        || number == 0.0
        || whole == 0.0 && difference < f64::EPSILON * EPSILON
        || difference / (number.abs() + whole.abs()) < EPSILON
}

/// Formats a float as Go's `%v`.
pub fn go_float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |rest| ("-", rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (number, text) in [(0.5, "0.5"), (10.0, "10"), (1e21, "1e+21"), (1.5e-7, "1.5e-07"), (1e6, "1000000")] {
            assert_eq!(go_float(number), text);
        }
    }
}
