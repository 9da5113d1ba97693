//! Extra attributes in header names, as front proxies and impersonation send them.

use std::collections::BTreeMap;

use apiserver_core::query::decode_percent_strict;
use http::HeaderMap;

/// Returns the values of all headers with one of `prefixes` (in lower case), by the rest of their names.
pub fn parse_extra_headers(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes {
        for (name, value) in headers {
            let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            extra.entry(decode_extra_key(key)).or_default().push(value);
        }
    }
    extra
}

/// Decodes percent-encoding; a malformed key stays as it is.
fn decode_extra_key(text: &str) -> String {
    decode_percent_strict(text).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_keys_stay_encoded() {
        for (text, key) in [
            ("scopes", "scopes"),
            ("acme.com%2fproject", "acme.com/project"),
            ("acme.com%2Fproject", "acme.com/project"),
            ("bad%2", "bad%2"),
            ("bad%zz", "bad%zz"),
            ("", ""),
        ] {
            assert_eq!(decode_extra_key(text), key);
        }
    }
}
