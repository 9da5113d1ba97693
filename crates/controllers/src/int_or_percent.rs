//! Numbers that may be given as a percentage of something.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How a percentage becomes a whole number.
#[derive(Clone, Copy)]
pub(crate) enum Round {
    Up,
    Down,
}

/// The number that `value` means of `total`. What is neither a number nor a percentage counts as zero: the API server
/// does not let it in.
pub(crate) fn scaled(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok()).unwrap_or(0);
            let hundredfold = percent * i64::from(total);
            let rounded = match round {
                Round::Up => (hundredfold + 99).div_euclid(100),
                Round::Down => hundredfold.div_euclid(100),
            };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_asked() {
        let check = |value: &str, total, up, down| {
            let value = IntOrString::String(value.into());
            assert_eq!((scaled(Some(&value), total, Round::Up), scaled(Some(&value), total, Round::Down)), (up, down));
        };
        check("25%", 3, 1, 0);
        check("25%", 4, 1, 1);
        check("25%", 10, 3, 2);
        check("100%", 7, 7, 7);
        check("0%", 7, 0, 0);
        check("many", 7, 0, 0);
        assert_eq!(scaled(Some(&IntOrString::Int(2)), 7, Round::Up), 2);
        assert_eq!(scaled(None, 7, Round::Up), 0);
    }
}
