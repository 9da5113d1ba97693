//! Query parameters, and the percent-encoding of queries and paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The characters that Go's `url.QueryEscape` escapes; a space becomes `+` afterwards.
const QUERY_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Name and value pairs, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses `a=b&c=d`, with `+` and `%xx`. Malformed pairs are dropped, as upstream does.
    pub fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.contains(';') && has_valid_escapes(pair));
        let pairs = pairs.flat_map(|pair| form_urlencoded::parse(pair.as_bytes()).into_owned()).collect();
        Self { pairs }
    }

    /// Returns the first value of a parameter; an empty value counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        let first = self.pairs.iter().find(|(key, _)| key == name);
        first.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns all values of a parameter.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a boolean parameter is set: `watch`, `watch=1`, `watch=true`. The first value counts; `False` is Python's.
    pub fn is_set(&self, name: &str) -> bool {
        self.get_all(name).next().is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Whether every `%` is followed by two hexadecimal digits.
fn has_valid_escapes(text: &str) -> bool {
    let mut escapes = text.split('%').skip(1).map(str::as_bytes);
    escapes.all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Decodes `%xx`; malformed escapes stay, and malformed UTF-8 is replaced.
pub fn decode_percent(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Decodes `%xx`; `None` if an escape is malformed. Malformed UTF-8 is replaced.
pub fn decode_percent_strict(text: &str) -> Option<String> {
    has_valid_escapes(text).then(|| decode_percent(text))
}

/// Encodes text as a query value, like Go's `url.QueryEscape`.
pub fn encode_query_value(text: &str) -> String {
    utf8_percent_encode(text, QUERY_ESCAPED).to_string().replace("%20", "+")
}

/// Encodes names and values as a query.
pub fn encode_query(pairs: impl Iterator<Item = (&'static str, String)>) -> String {
    pairs.map(|(name, value)| format!("{name}={}", encode_query_value(&value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_pairs_are_dropped() {
        let query = Query::parse("a=x%3D1&b=c+d&watch&bad=%zz&bad=%4&bad=;&empty=");
        assert_eq!(query.get("a"), Some("x=1"));
        assert_eq!(query.get("b"), Some("c d"));
        assert_eq!(query.get("bad"), None);
        assert_eq!(query.get("empty"), None);
        assert!(query.is_set("watch") && query.is_set("empty") && !query.is_set("absent"));
        assert!(!Query::parse("tty=False&tty=1").is_set("tty"));
    }

    #[test]
    fn values_are_encoded_like_query_escape() {
        assert_eq!(encode_query_value("a b-_.~*/é%"), "a+b-_.~%2A%2F%C3%A9%25");
        assert_eq!(decode_percent("%zz%4%41"), "%zz%4A");
        assert_eq!(decode_percent_strict("acme.com%2fx").as_deref(), Some("acme.com/x"));
        assert_eq!(decode_percent_strict("%zz"), None);
    }
}
