//! Resolves `IntOrString` values that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Rounding of a percentage.
#[derive(Clone, Copy)]
pub(crate) enum RoundingMode {
    Up,
    Down,
}

/// Resolves `value` against `total`. Anything else than a number or percentage is rejected by validation and counts as
/// zero.
pub(crate) fn scaled_value(value: Option<&IntOrString>, total: i32, round: RoundingMode) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok()).unwrap_or(0);
            let hundredfold = percent * i64::from(total);
            let rounded = match round {
                RoundingMode::Up => (hundredfold + 99).div_euclid(100),
                RoundingMode::Down => hundredfold.div_euclid(100),
            };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_up_or_down() {
        let check = |value: &str, total, up, down| {
            let value = IntOrString::String(value.into());
            assert_eq!(
                (
                    scaled_value(Some(&value), total, RoundingMode::Up),
                    scaled_value(Some(&value), total, RoundingMode::Down)
                ),
                (up, down)
            );
        };
        check("25%", 3, 1, 0);
        check("25%", 4, 1, 1);
        check("25%", 10, 3, 2);
        check("100%", 7, 7, 7);
        check("0%", 7, 0, 0);
        check("many", 7, 0, 0);
        assert_eq!(scaled_value(Some(&IntOrString::Int(2)), 7, RoundingMode::Up), 2);
        assert_eq!(scaled_value(None, 7, RoundingMode::Up), 0);
    }
}
