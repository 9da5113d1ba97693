//! The query of a request, decoded.

/// Name and value pairs, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads `a=b&c=d`, with `+` and `%xx`. A pair with a broken escape is as good as absent, as it is upstream.
    pub fn parse(raw: &str) -> Self {
        let pairs = raw
            .split('&')
            .filter(|pair| !pair.is_empty() && is_whole(pair))
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
            })
            .collect();
        Self { pairs }
    }

    /// The first value of a name; "" is as good as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// All values of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set: `watch`, `watch=1`, `watch=true`. The first counts, and `False` is how Python says no.
    pub fn flag(&self, name: &str) -> bool {
        let first = self.pairs.iter().find(|(n, _)| n == name);
        first.is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Whether every `%` of a pair is followed by two digits, and nothing separates it further.
fn is_whole(pair: &str) -> bool {
    let escapes = || pair.split('%').skip(1).map(str::as_bytes);
    !pair.contains(';') && escapes().all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Decodes `%xx`; what is not UTF-8 afterwards is replaced.
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Encodes text as a value of a query.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Encodes names and values as a query.
pub fn encode_pairs(pairs: impl Iterator<Item = (&'static str, String)>) -> String {
    pairs.map(|(name, value)| format!("{name}={}", encode(&value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::parse("a=x%3D1&b=c+d&watch&bad=%zz&bad=%4&bad=;&empty=");
        assert_eq!(query.get("a"), Some("x=1"));
        assert_eq!(query.get("b"), Some("c d"));
        assert_eq!(query.get("bad"), None);
        assert_eq!(query.get("empty"), None);
        assert!(query.flag("watch") && query.flag("empty") && !query.flag("absent"));
        assert!(!Query::parse("tty=False&tty=1").flag("tty"));
    }
}
