//! Resource quantities (`100m`, `128Mi`, `1e3`) as whole numbers, rounded up as upstream does.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value in units, for example bytes or processes.
pub fn value(quantity: &Quantity) -> i64 {
    scaled(&quantity.0, 1.0)
}

/// The value in thousandths, for processor time.
pub fn milli(quantity: &Quantity) -> i64 {
    scaled(&quantity.0, 1000.0)
}

/// What cannot be parsed is zero: the API server has validated it.
fn scaled(text: &str, scale: f64) -> i64 {
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        exponent => match exponent.trim_start_matches(['e', 'E']).parse::<i32>() {
            Ok(exponent) => 10f64.powi(exponent),
            Err(_) => return 0,
        },
    };
    let exact = number.parse::<f64>().unwrap_or(0.0) * factor * scale;
    // Decimal fractions are not exact in binary; what is a hair above a whole number is that number.
    let rounded = exact.round();
    if (exact - rounded).abs() < 1e-6 { rounded as i64 } else { exact.ceil() as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_rounded_up() {
        let value = |text: &str| value(&Quantity(text.into()));
        let milli = |text: &str| milli(&Quantity(text.into()));
        assert_eq!([value("128Mi"), value("1.5Gi"), value("1e3"), value("1M")], [134217728, 1610612736, 1000, 1000000]);
        assert_eq!([milli("100m"), milli("0.1"), milli("2"), milli("1.0001")], [100, 100, 2000, 1001]);
        assert_eq!([value("100m"), value("nonsense")], [1, 0]);
    }
}
