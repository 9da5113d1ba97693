//! The formats of values that custom resources may have. A format that is not known says nothing.

/// A format that is looked at for values of a type; empty for any other.
pub fn supported<'a>(ty: &str, format: &'a str) -> &'a str {
    if formats::named::is_known(ty, format) { format } else { "" }
}

/// Whether a text is of a format, if that is one of texts.
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
