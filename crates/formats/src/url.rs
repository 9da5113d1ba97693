//! URLs, parsed as Go's `net/url` parses request URIs.

use std::collections::BTreeMap;

use crate::ParseError;

/// A URL with an escaped path and a raw query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme in lower case; empty for a path alone.
    pub scheme: String,
    user: String,
    /// The host with its port.
    pub host: String,
    /// The escaped path.
    pub path: String,
    query: String,
    fragment: String,
}

impl Url {
    /// Parses an absolute URL or path.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_request_uri(text).map_err(|reason| ParseError(format!("parse {text:?}: {reason}")))
    }

    fn parse_request_uri(text: &str) -> Result<Self, ParseError> {
        if text.bytes().any(|c| c < b' ' || c == 0x7f) {
            return Err(ParseError("net/url: invalid control character in URL".into()));
        }
        if text.is_empty() {
            return Err(ParseError("empty url".into()));
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            // A URL with a scheme and no slash is opaque.
            if scheme.is_empty() {
                return Err(ParseError("invalid URI for request".into()));
            }
            let url = Self::from_parts(scheme, "", "", "", query, fragment);
            return Ok(url);
        }
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) if !rest.starts_with('/') && (!scheme.is_empty() || !rest.is_empty()) => {
                if scheme.is_empty() {
                    // A request path may begin with two slashes.
                    ("", &text[..text.len().min(1 + rest.len() + 1)])
                } else {
                    rest.split_at(rest.find('/').unwrap_or(rest.len()))
                }
            }
            Some(rest) if !scheme.is_empty() => ("", rest),
            _ => ("", rest),
        };
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let host = parse_host(host)?;
        let path = escape_path(path)?;
        Ok(Self::from_parts(scheme, user, &host, &path, query, fragment))
    }

    fn from_parts(scheme: String, user: &str, host: &str, path: &str, query: &str, fragment: &str) -> Self {
        Self {
            scheme,
            user: user.into(),
            host: host.into(),
            path: path.into(),
            query: query.into(),
            fragment: fragment.into(),
        }
    }

    /// Returns the host without brackets, and the port.
    pub fn host_and_port(&self) -> (&str, &str) {
        let host = self.host.as_str();
        let (name, port) = match host.rfind(':') {
            Some(at) if host[at + 1..].bytes().all(|c| c.is_ascii_digit()) && !host[at..].contains(']') => {
                (&host[..at], &host[at + 1..])
            }
            _ => (host, ""),
        };
        (name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name), port)
    }

    /// Parses the query parameters; invalid ones are skipped.
    pub fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut pairs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescape_query(key), unescape_query(value)) {
                pairs.entry(key).or_default().push(value);
            }
        }
        pairs
    }
}

fn split_scheme(text: &str) -> Result<(String, &str), ParseError> {
    for (at, c) in text.bytes().enumerate() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err(ParseError("missing protocol scheme".into())),
            b':' => return Ok((text[..at].to_ascii_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    let first = text.split('/').next().unwrap_or("");
    match first.contains(':') && !text.starts_with('/') {
        true => Err(ParseError("first path segment in URL cannot contain colon".into())),
        false => Ok((String::new(), text)),
    }
}

fn parse_host(host: &str) -> Result<String, ParseError> {
    let after = match host.strip_prefix('[') {
        Some(inner) => match inner.find(']') {
            Some(at) => &inner[at + 1..],
            None => return Err(ParseError("missing ']' in host".into())),
        },
        None => match host.rfind(':') {
            Some(at) => &host[at..],
            None => "",
        },
    };
    let port = after.strip_prefix(':').unwrap_or(after);
    if !after.is_empty() && (!after.starts_with(':') || !port.bytes().all(|c| c.is_ascii_digit())) {
        return Err(ParseError(format!("invalid port {after:?} after host")));
    }
    if let Some(c) = host.chars().find(|c| " <>\"\\^`{|}".contains(*c)) {
        return Err(ParseError(format!("invalid character {:?} in host name", c.to_string())));
    }
    match unescape_with(host, false) {
        Some(host) => Ok(host),
        None => Err(invalid_escape_error(host)),
    }
}

fn invalid_escape_error(text: &str) -> ParseError {
    let at =
        text.match_indices('%').map(|(at, _)| at).find(|at| parse_hex_byte(&text[*at + 1..]).is_none()).unwrap_or(0);
    ParseError(format!("invalid URL escape {:?}", text[at..].chars().take(3).collect::<String>()))
}

/// Returns the path as sent: unchanged if all characters are valid, otherwise re-escaped.
fn escape_path(path: &str) -> Result<String, ParseError> {
    let plain = unescape_with(path, false).ok_or_else(|| invalid_escape_error(path))?;
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:@/[]%".contains(c);
    if path.chars().all(fine) {
        return Ok(path.into());
    }
    let mut escaped = String::new();
    for byte in plain.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(byte as char),
            _ if b"-_.~$&+,/:;=@".contains(&byte) => escaped.push(byte as char),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(escaped)
}

fn parse_hex_byte(text: &str) -> Option<u8> {
    u8::from_str_radix(text.get(..2).filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()))?, 16).ok()
}

/// Unescapes a part of a query.
fn unescape_query(text: &str) -> Option<String> {
    unescape_with(text, true)
}

fn unescape_with(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '%' => {
                bytes.push(parse_hex_byte(&rest[1..])?);
                taken = 3;
            }
            '+' if plus => bytes.push(b' '),
            _ => bytes.extend_from_slice(&rest.as_bytes()[..taken]),
        }
        rest = &rest[taken..];
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
