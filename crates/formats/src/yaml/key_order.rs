//! The key order of encoded YAML: letters after other characters, runs of digits by their numeric value.

use std::cmp::Ordering;

/// Compares two keys.
pub fn compare_keys(a: &str, b: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    match left.iter().zip(&right).position(|(a, b)| a != b) {
        Some(at) => compare_at_difference(&left, &right, at),
        None => left.len().cmp(&right.len()),
    }
}

/// Compares keys whose first difference is at index `at`.
fn compare_at_difference(left: &[char], right: &[char], at: usize) -> Ordering {
    let (a, b) = (left[at], right[at]);
    match (a.is_alphabetic(), b.is_alphabetic()) {
        (true, true) => return a.cmp(&b),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero within a number is one of its digits; a leading zero is not.
    let inside = (a == '0' || b == '0') && left[..at].iter().rev().take_while(|c| c.is_numeric()).any(|c| *c != '0');
    let (an, a_end) = leading_number(left, at, inside);
    let (bn, b_end) = leading_number(right, at, inside);
    an.cmp(&bn).then(a_end.cmp(&b_end)).then(a.cmp(&b))
}

fn leading_number(chars: &[char], at: usize, inside: bool) -> (i64, usize) {
    let digits = chars[at..].iter().map_while(|c| c.to_digit(10));
    let length = digits.clone().count();
    let value = digits.fold(i64::from(inside), |value, digit| value.wrapping_mul(10).wrapping_add(i64::from(digit)));
    (value, at + length)
}

#[cfg(test)]
mod tests {
    use super::compare_keys;

    #[test]
    fn keys_are_ordered_like_upstream() {
        let sorted = ["", "0", "1", "01", "2", "10", "-", "_", "A", "a", "a0", "a2", "a10", "a-b", "a/b", "ab", "b"];
        let mut shuffled: Vec<&str> = sorted.iter().rev().copied().collect();
        shuffled.sort_by(|a, b| compare_keys(a, b));
        let position = |key: &str| shuffled.iter().position(|other| *other == key);
        assert!(position("a2") < position("a10") && position("a-b") < position("ab") && position("A") < position("a"));
        assert!(position("2") < position("10") && position("") == Some(0) && position("a10") < position("b"));
    }
}
