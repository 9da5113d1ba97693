//! Value formats of custom resources. Unknown formats are ignored.

/// Returns the format if it is supported for the type; empty otherwise.
pub fn supported_format<'a>(ty: &str, format: &'a str) -> &'a str {
    if formats::strfmt::is_known_format(ty, format) { format } else { "" }
}

/// Whether a string conforms to a format; always true for formats of other types.
pub fn is_valid_format(format: &str, text: &str) -> bool {
    format.is_empty() || formats::strfmt::matches_format(format, text).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_apply_to_their_types() {
        let check = |ty: &str, format: &str, want: &str| assert_eq!(supported_format(ty, format), want);
        check("string", "date-time", "date-time");
        check("string", "nope", "");
        check("integer", "int32", "int32");
        check("integer", "date", "");
        assert!(
            is_valid_format("ipv4", "1.2.3.4") && !is_valid_format("ipv4", "1.2.3") && is_valid_format("int32", "x")
        );
    }
}
