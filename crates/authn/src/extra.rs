//! Headers whose names carry a key: what proxies and impersonators say beyond name and groups.

use std::collections::BTreeMap;

use http::HeaderMap;

/// The values of all headers that begin with one of `prefixes` (in lower case), under the rest of their names.
pub fn of(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes {
        for (name, value) in headers {
            let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            extra.entry(key_of(key)).or_default().push(value);
        }
    }
    extra
}

/// Undoes percent-encoding; a key that is not well encoded stays as it is.
fn key_of(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = tail else { return text.to_owned() };
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return text.to_owned() };
        bytes.push(high << 4 | low);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded() {
        for (text, key) in [
            ("scopes", "scopes"),
            ("acme.com%2fproject", "acme.com/project"),
            ("acme.com%2Fproject", "acme.com/project"),
            ("bad%2", "bad%2"),
            ("bad%zz", "bad%zz"),
            ("", ""),
        ] {
            assert_eq!(key_of(text), key);
        }
    }
}
