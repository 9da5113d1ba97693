//! Resource quantities such as `100m`, `1.5Gi` or `1e3`: parsed, compared, and formatted in upstream's canonical form.
//!
//! As upstream, a quantity is an `i64` with a power of ten, or a decimal if that overflows; only the former converts to
//! an integer.

use std::{cmp::Ordering, fmt};

/// A resource quantity in nanos, with the format of its suffix. Equality ignores the format.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// The amount in billionths, saturated at the bounds of the type.
    nanos: i128,
    form: QuantityFormat,
    /// Value and power of ten; `None` if the quantity is a decimal.
    small: Option<(i64, i32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityFormat {
    Binary,
    Decimal,
    Exponent,
}

const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// A quantity parse error with upstream's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the format of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    FormatWrong,
    /// The number is invalid or too large.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const UNIT: i128 = 1_000_000_000;
/// Maximum number of significant digits.
const DIGITS: usize = 36;

/// Whether a text is known to be in canonical form: one to three digits and a suffix.
pub fn is_canonical(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    matches!(digits, 1..=3)
        && !text.starts_with('0')
        && matches!(
            &text[digits..],
            "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi"
        )
}

impl Quantity {
    /// The quantity zero.
    pub const ZERO: Self = Self { nanos: 0, form: QuantityFormat::Decimal, small: Some((0, 0)) };

    /// Returns the canonical form of a quantity; the error is upstream's message.
    pub fn canonicalize(text: &str) -> Result<String, QuantityError> {
        let quantity = Self::try_parse(text)?;
        if quantity.is_saturated() { Err(QuantityError::Numeric) } else { Ok(quantity.to_string()) }
    }

    /// Parses a quantity; `None` if it is invalid or too large to be formatted.
    pub fn parse(text: &str) -> Option<Self> {
        Self::try_parse(text).ok().filter(|quantity| !quantity.is_saturated())
    }

    /// Parses a quantity; the error is upstream's message.
    pub fn try_parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::FormatWrong);
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let (form, exponent) = parse_suffix(suffix)?;
        if whole.is_empty() && fraction.is_empty() && !rest.is_empty() {
            return Err(QuantityError::Numeric);
        }
        let written = QuantityParts { whole: whole.trim_start_matches('0'), fraction, form, exponent };
        let amount = written.small().unwrap_or_else(|| written.as_decimal());
        Ok(if text.starts_with('-') { amount.negated() } else { amount })
    }

    /// Creates a quantity from an integer.
    pub fn from_integer(value: i64) -> Self {
        Self { nanos: i128::from(value) * UNIT, form: QuantityFormat::Decimal, small: Some((value, 0)) }
    }

    /// Whether the quantity is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the quantity is saturated.
    fn is_saturated(self) -> bool {
        self.nanos.abs() == i128::MAX
    }

    /// Whether the quantity is negative.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Adds, keeping the format of `self` unless `self` is zero.
    pub fn plus(self, other: Self) -> Self {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form, small: self.int64_sum(other) }
    }

    /// Subtracts, keeping the format of `self` unless `self` is zero.
    pub fn minus(self, other: Self) -> Self {
        self.plus(other.negated())
    }

    /// Returns the negated quantity.
    pub fn negated(self) -> Self {
        let small = self.small.and_then(|(value, scale)| Some((value.checked_neg()?, scale)));
        Self { nanos: -self.nanos, small, ..self }
    }

    fn int64_sum(self, other: Self) -> Option<(i64, i32)> {
        let (a, b) = (self.small?, other.small?);
        if a.0 == 0 || b.0 == 0 {
            return Some(if b.0 == 0 { a } else { b });
        }
        let scale = a.1.min(b.1);
        let at = |(value, from): (i64, i32)| value.checked_mul(10i64.checked_pow(from.abs_diff(scale))?);
        Some((at(a)?.checked_add(at(b)?)?, scale))
    }

    /// Returns thousandths, rounded up, as used for CPU.
    pub fn millis(self) -> i64 {
        clamp_to_i64(divide_rounding_up(self.nanos, 1_000_000))
    }

    /// Returns whole units, rounded up, as used for memory.
    pub fn value(self) -> i64 {
        clamp_to_i64(divide_rounding_up(self.nanos, UNIT))
    }

    /// Returns the quantity as an integer, where upstream converts it exactly.
    pub fn as_int64(self) -> Option<i64> {
        let (value, scale) = self.small?;
        value.checked_mul(10i64.checked_pow(u32::try_from(scale).ok()?)?)
    }

    /// Returns the nearest float.
    pub fn as_approximate_float(self) -> f64 {
        match self.small {
            Some((value, scale)) => value as f64 * 10f64.powi(scale),
            None => self.nanos as f64 / 1e9,
        }
    }
}

/// The parts of a quantity: integer digits without leading zeros, fraction digits, and the suffix's format and
/// exponent.
struct QuantityParts<'a> {
    whole: &'a str,
    fraction: &'a str,
    form: QuantityFormat,
    exponent: i32,
}

impl QuantityParts<'_> {
    /// Returns the quantity as an integer with a power of ten, if upstream represents it so.
    fn small(&self) -> Option<Quantity> {
        let (whole, fraction) = (self.whole.len() as i32, self.fraction.len() as i32);
        let (value, scale) = if self.form == QuantityFormat::Binary {
            let room = 15 - whole - self.exponent * 3 / 10 - 1;
            let value = self.leading_number().checked_mul(1 << self.exponent).filter(|_| fraction == 0 && room >= 0)?;
            (value, 0)
        } else {
            let scale = self.exponent.checked_sub(fraction)?;
            (self.leading_number(), Some(scale).filter(|scale| whole + fraction <= 18 && *scale >= -9)?)
        };
        let value = i64::try_from(value).ok()?;
        Some(Quantity { nanos: scale_to_nanos(value.into(), scale), form: self.form, small: Some((value, scale)) })
    }

    /// Returns the quantity as a decimal, rounded up to billionths; binary formats saturate at 2⁶³-1.
    fn as_decimal(&self) -> Quantity {
        let length = self.whole.len() + self.fraction.len();
        let (mut value, mut form) = (self.leading_number(), self.form);
        let mut scale = length.saturating_sub(DIGITS) as i32 - self.fraction.len() as i32;
        value += i128::from(self.all_digits().skip(DIGITS).any(|digit| digit != b'0'));
        if form == QuantityFormat::Binary {
            value = value.saturating_mul(1 << self.exponent);
        } else {
            scale = scale.saturating_add(self.exponent);
        }
        let mut nanos = scale_to_nanos(value, scale);
        if form == QuantityFormat::Binary {
            nanos = nanos.min(i128::from(i64::MAX) * UNIT);
            form = if nanos < UNIT { QuantityFormat::Decimal } else { form };
        }
        Quantity { nanos, form, small: None }
    }

    /// Returns the most significant digits as a number.
    fn leading_number(&self) -> i128 {
        self.all_digits().take(DIGITS).fold(0, |number, digit| number * 10 + i128::from(digit - b'0'))
    }

    fn all_digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }
}

/// Parses a quantity suffix into its format and its exponent, to base 2 or 10.
fn parse_suffix(suffix: &str) -> Result<(QuantityFormat, i32), QuantityError> {
    let known = |list: &[(&str, i32)]| list.iter().find(|(name, _)| *name == suffix).map(|(_, power)| *power);
    if let Some(power) = known(&DECIMAL) {
        return Ok((QuantityFormat::Decimal, power));
    }
    if let Some(power) = known(&BINARY) {
        return Ok((QuantityFormat::Binary, power));
    }
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::FormatWrong);
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse().ok());
    exponent.map(|exponent| (QuantityFormat::Exponent, exponent)).ok_or(QuantityError::Suffix)
}

/// Converts a value times a power of ten to billionths, rounding away from zero.
fn scale_to_nanos(value: i128, scale: i32) -> i128 {
    let power = scale.saturating_add(9);
    if value == 0 {
        return 0;
    }
    if power >= 0 {
        return 10i128.checked_pow(power as u32).and_then(|factor| value.checked_mul(factor)).unwrap_or(i128::MAX);
    }
    10i128.checked_pow(power.unsigned_abs()).map_or(1, |divisor| divide_rounding_up(value, divisor))
}

fn divide_rounding_up(value: i128, divisor: i128) -> i128 {
    value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0)
}

fn clamp_to_i64(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.form == QuantityFormat::Binary && self.nanos % UNIT == 0 && (self.nanos / UNIT).abs() >= 1024 {
            let value = self.nanos / UNIT;
            let suffix = BINARY.iter().rev().find(|(_, bits)| value % (1i128 << bits) == 0);
            return match suffix {
                Some((name, bits)) => write!(f, "{}{name}", value >> bits),
                None => write!(f, "{value}"),
            };
        }
        let (name, power) = DECIMAL
            .iter()
            .rev()
            .find(|(_, power)| self.nanos % 10i128.pow((power + 9).unsigned_abs()) == 0)
            .unwrap_or(&DECIMAL[0]);
        let value = self.nanos / 10i128.pow((power + 9).unsigned_abs());
        match (self.form, power) {
            (QuantityFormat::Exponent, power) if *power != 0 => write!(f, "{value}e{power}"),
            _ => write!(f, "{value}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_formatted_canonically() {
        let cases = [
            ("1000", "1k"),
            ("100m", "100m"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("512", "512"),
            ("1e3", "1e3"),
            ("0", "0"),
            ("1500m", "1500m"),
            ("10Ei", "9223372036854775807"),
            ("0.5Ki", "512"),
            ("1.0000000000000000000000000000000000000001", "1000000001n"),
            ("0.1n", "1n"),
            ("-1", "-1"),
        ];
        for (text, want) in cases {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()).as_deref(), Some(want), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", ".", "1Kib", "e3", "1e999999999", "-1e40"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn canonical_texts_are_left_unchanged() {
        let suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"];
        for suffix in suffixes {
            for digits in ["1", "10", "100", "128", "999"] {
                let text = format!("{digits}{suffix}");
                assert!(is_canonical(&text));
                assert_eq!(Quantity::parse(&text).unwrap().to_string(), text);
            }
        }
        assert!(["", "0", "01", "1000", "1e3", "1E", "1.5", "-1"].iter().all(|text| !is_canonical(text)));
    }

    #[test]
    fn invalid_quantities_have_upstream_messages() {
        let cases = [("x", "quantities"), ("", "quantities"), ("1x", "quantities"), ("1.2.3", "quantities")];
        let cases =
            cases.into_iter().chain([("--1", "unable to parse quantity's"), ("1Gi1", "unable to parse quantity's")]);
        for (text, want) in cases.chain([("1e", "unable to parse quantity's"), (".", "unable to parse numeric")]) {
            assert!(Quantity::try_parse(text).unwrap_err().to_string().starts_with(want), "{text}");
        }
    }

    #[test]
    fn values_are_rounded_up() {
        assert_eq!(Quantity::parse("1u").unwrap().millis(), 1);
        assert_eq!(Quantity::parse("2").unwrap().millis(), 2000);
        assert_eq!(Quantity::parse("1.5Ki").unwrap().value(), 1536);
    }
}
