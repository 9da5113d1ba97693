//! Quantities such as `100m`, `1.5Gi` or `1e3`: parsed, compared, and written in upstream's canonical form.

use std::fmt;

/// An amount in billionths, with the family of suffixes it was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// Whether a text is certainly what [`Quantity`] writes for it: up to three digits and a suffix.
pub(crate) fn is_canonical(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    matches!(digits, 1..=3)
        && !text.starts_with('0')
        && matches!(
            &text[digits..],
            "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi"
        )
}

/// Why a text that cannot be read is no quantity, in upstream's words.
pub(crate) fn fault(text: &str) -> &'static str {
    let digits = |text: &'_ str| text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let after = |text: &'_ str, left: usize| text.len() - left;
    let sign = |text: &'_ str| usize::from(text.starts_with(['-', '+']));
    let rest = &text[sign(text)..];
    let rest = &rest[after(rest, digits(rest))..];
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let suffix = &rest[after(rest, digits(rest))..];
    let end = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let end = &end[sign(end)..];
    if text.is_empty() || digits(end) > 0 {
        return "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    }
    let known = |name: &str| name == suffix;
    if DECIMAL.iter().any(|(name, _)| known(name)) || BINARY.iter().any(|(name, _)| known(name)) {
        return "unable to parse numeric part of quantity";
    }
    "unable to parse quantity's suffix"
}

impl Quantity {
    /// Reads a quantity; `None` for what is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits_end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (mantissa, scale) = decimal(number)?;
        if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
            let nanos = scaled(mantissa.checked_mul(1i128 << bits)?, scale + 9)?;
            return Some(Self { nanos, form: Form::Binary });
        }
        if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
            return Some(Self { nanos: scaled(mantissa, scale + 9 + power)?, form: Form::Decimal });
        }
        let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        Some(Self { nanos: scaled(mantissa, scale.checked_add(9)?.checked_add(power)?)?, form: Form::Exponent })
    }

    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, form: Form::Decimal };

    /// A whole number.
    pub fn whole(value: i64) -> Self {
        Self { nanos: i128::from(value) * 1_000_000_000, form: Form::Decimal }
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum, written as the first is unless that is nothing.
    pub fn plus(self, other: Self) -> Self {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }

    /// The difference, written as the first is unless that is nothing.
    pub fn minus(self, other: Self) -> Self {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_sub(other.nanos), form }
    }

    /// In thousandths, rounded up: what CPU is counted in.
    pub fn millis(self) -> i64 {
        clamp(ceil(self.nanos, 1_000_000))
    }

    /// In whole units, rounded up: what memory is counted in.
    pub fn value(self) -> i64 {
        clamp(ceil(self.nanos, 1_000_000_000))
    }
}

/// Sign, digits and the power of ten of the last digit.
fn decimal(number: &str) -> Option<(i128, i32)> {
    let (sign, digits) = match number.as_bytes().first()? {
        b'-' => (-1, &number[1..]),
        b'+' => (1, &number[1..]),
        _ => (1, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || digits.len() > 30 {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value.checked_mul(10)?.checked_add(i128::from(digit.to_digit(10)?))?;
    }
    Some((sign * value, -i32::try_from(fraction.len()).ok()?))
}

/// `mantissa × 10^power`, rounded away from zero below one.
fn scaled(mantissa: i128, power: i32) -> Option<i128> {
    match power {
        0.. => mantissa.checked_mul(10i128.checked_pow(power.unsigned_abs())?),
        _ => {
            let divisor = 10i128.checked_pow(power.unsigned_abs())?;
            Some(ceil(mantissa.abs(), divisor) * mantissa.signum())
        }
    }
}

fn ceil(value: i128, divisor: i128) -> i128 {
    value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0)
}

fn clamp(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNIT: i128 = 1_000_000_000;
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.form == Form::Binary && self.nanos % UNIT == 0 && (self.nanos / UNIT).abs() >= 1024 {
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
            (Form::Exponent, power) if *power != 0 => write!(f, "{value}e{power}"),
            _ => write!(f, "{value}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_canonically() {
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
            ("10Ei", "10Ei"),
            ("-1", "-1"),
        ];
        for (text, want) in cases {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()).as_deref(), Some(want), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", ".", "1Kib", "e3", "1e999999999"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_canonical_at_a_glance_is_written_so() {
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
    fn faults_are_told_as_upstream_tells_them() {
        let cases = [("x", "quantities"), ("", "quantities"), ("1x", "quantities"), ("1.2.3", "quantities")];
        let cases =
            cases.into_iter().chain([("--1", "unable to parse quantity's"), ("1Gi1", "unable to parse quantity's")]);
        for (text, want) in cases.chain([("1e", "unable to parse quantity's"), (".", "unable to parse numeric")]) {
            assert!(Quantity::parse(text).is_none() && fault(text).starts_with(want), "{text}: {}", fault(text));
        }
    }

    #[test]
    fn amounts_round_up() {
        assert_eq!(Quantity::parse("1u").unwrap().millis(), 1);
        assert_eq!(Quantity::parse("2").unwrap().millis(), 2000);
        assert_eq!(Quantity::parse("1.5Ki").unwrap().value(), 1536);
    }
}
