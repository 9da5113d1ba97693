//! Validates numbers: range of the format, minimum, maximum and multiples. Integers are compared as integers.

use api::{
    Value,
    validate::{FieldError, FieldErrorType},
};

use super::{SchemaValidator, ValidationResult};
use crate::structural_schema::{JsonType, Structural, ValueValidation};

/// A number as Go decodes it.
#[derive(Clone, Copy)]
enum GoNumber {
    Int(i64),
    Float(f64),
}

impl SchemaValidator<'_> {
    pub(super) fn validate_number(
        &self,
        node: &Structural,
        validation: &ValueValidation,
        value: &Value,
        path: &str,
    ) -> ValidationResult {
        let mut out = ValidationResult { passed: 2, ..ValidationResult::default() };
        let number = match value.as_i64() {
            Some(number) => GoNumber::Int(number),
            None => GoNumber::Float(value.as_f64().unwrap_or_default()),
        };
        let range = |out: &mut ValidationResult, number: GoNumber, what: &str| match self
            .validate_range(node, number, what, path)
        {
            Some(error) => {
                out.add_error(error);
                false
            }
            None => true,
        };
        range(&mut out, number, "Checked");
        if let Some(factor) = validation.multiple_of {
            let native = range(&mut out, GoNumber::Float(factor), "MultipleOf");
            out.errors.extend(self.validate_multiple_of(value, number, factor, native, path));
        }
        if let Some(least) = validation.minimum {
            let native = range(&mut out, GoNumber::Float(least), "Minimum boundary");
            let strict = validation.exclusive_minimum;
            let (under, bound) = compare_to_bound(number, least, native, |a, b| a < b || strict && a == b);
            if under {
                let equal = if strict { "" } else { " or equal to" };
                out.add_error(self.new_invalid(path, value.clone(), &format!("should be greater than{equal} {bound}")));
            }
        }
        if let Some(most) = validation.maximum {
            let native = range(&mut out, GoNumber::Float(most), "Maximum boundary");
            let strict = validation.exclusive_maximum;
            let (over, bound) = compare_to_bound(number, most, native, |a, b| a > b || strict && a == b);
            if over {
                let equal = if strict { "" } else { " or equal to" };
                out.add_error(self.new_invalid(path, value.clone(), &format!("should be less than{equal} {bound}")));
            }
        }
        out
    }

    /// Checks that a number fits the type and format of the schema.
    fn validate_range(&self, node: &Structural, number: GoNumber, what: &str, path: &str) -> Option<FieldError> {
        let format = &*node.value_validation().format;
        let single = if node.int_or_string { JsonType::Any } else { node.kind };
        let (fits, format) = match (single, number) {
            (JsonType::Integer, GoNumber::Int(number)) => (format != "int32" || i32::try_from(number).is_ok(), format),
            (JsonType::Integer, GoNumber::Float(number)) => {
                let (least, most) =
                    if format == "int32" { (-2_147_483_648.0, 2_147_483_647.0) } else { (-9.3e18, 9.2e18) };
                (number.fract() == 0.0 && (least..=most).contains(&number), format)
            }
            (JsonType::Number, number) if format == "float" => (as_float(number).abs() <= f64::from(f32::MAX), format),
            _ => (true, ""),
        };
        let name = single.name();
        (!fits).then(|| {
            self.new_composite_error(match format {
                "" => format!("{what} value must be of type {name} (default format) in {path}"),
                format => format!("{what} value must be of type {name} with format {format} in {path}"),
            })
        })
    }

    fn validate_multiple_of(
        &self,
        value: &Value,
        number: GoNumber,
        factor: f64,
        native: bool,
        path: &str,
    ) -> Option<FieldError> {
        let (fits, positive, bound) = match number {
            GoNumber::Int(number) if native => {
                let factor = factor as i64;
                (factor > 0 && number % factor == 0, factor > 0, factor.to_string())
            }
            number => {
                let number = as_float(number);
                let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
                (is_whole(quotient), factor > 0.0, format_go_float(factor))
            }
        };
        if !positive {
            let message = format!("factor MultipleOf declared for {path} must be positive: {bound}");
            let bad = bound.parse::<f64>().map_or_else(|_| bound.clone().into(), |number| Value::from(number as i64));
            return Some(self.new_error(path, FieldErrorType::Invalid(bad.into()), message));
        }
        (!fits).then(|| self.new_invalid(path, value.clone(), &format!("should be a multiple of {bound}")))
    }
}

fn as_float(number: GoNumber) -> f64 {
    match number {
        GoNumber::Int(number) => number as f64,
        GoNumber::Float(number) => number,
    }
}

/// Compares as integers if the bound is one, and returns the bound as it was compared.
fn compare_to_bound(number: GoNumber, bound: f64, native: bool, test: impl Fn(f64, f64) -> bool) -> (bool, String) {
    match number {
        GoNumber::Int(number) if native => {
            let bound = bound as i64;
            // Integers beyond the precision of floats are compared by their order.
            let order = number.cmp(&bound) as i8;
            (test(f64::from(order), 0.0), bound.to_string())
        }
        number => (test(as_float(number), bound), format_go_float(bound)),
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
pub fn format_go_float(number: f64) -> String {
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
    fn floats_are_formatted_like_go() {
        for (number, text) in [(0.5, "0.5"), (10.0, "10"), (1e21, "1e+21"), (1.5e-7, "1.5e-07"), (1e6, "1000000")] {
            assert_eq!(format_go_float(number), text);
        }
    }
}
