//! Value formats of custom resources. Unknown formats are ignored.

/// Returns the format if it is supported for the type; empty otherwise.
pub fn supported<'a>(ty: &str, format: &'a str) -> &'a str {
    if formats::named::is_known(ty, format) { format } else { "" }
}

/// Whether a string conforms to a format; always true for formats of other types.
pub(super) fn is_valid(format: &str, text: &str) -> bool {
    format.is_empty() || formats::named::check(format, text).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_their_types() {
        let check = |ty: &str, format: &str, want: &str| assert_eq!(supported(ty, format), want);
        check("string", "date-time", "date-time");
        check("string", "nope", "");
        check("integer", "int32", "int32");
        check("integer", "date", "");
        assert!(is_valid("ipv4", "1.2.3.4") && !is_valid("ipv4", "1.2.3") && is_valid("int32", "x"));
    }
}
