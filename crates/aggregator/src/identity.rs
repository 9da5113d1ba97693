//! The user in `X-Remote-*` headers. Headers of this kind that a client sends are removed.

use apiserver_core::User;
use http::{HeaderMap, HeaderName, HeaderValue};

const NAME: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Replaces the `X-Remote-*` headers by those of `user`.
pub fn set_user_headers(headers: &mut HeaderMap, user: &User) {
    let claimed = |name: &&HeaderName| [&NAME, &UID, &GROUP].contains(name) || name.as_str().starts_with(EXTRA);
    let claimed: Vec<HeaderName> = headers.keys().filter(claimed).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    append_header(headers, NAME, &user.name);
    if !user.uid.is_empty() {
        append_header(headers, UID, &user.uid);
    }
    user.groups.iter().for_each(|group| append_header(headers, GROUP, group));
    for (key, values) in &user.extra {
        // An escaped key is always a valid header name.
        let Ok(name) = HeaderName::from_bytes(format!("{EXTRA}{}", escape_key(key)).as_bytes()) else { continue };
        values.iter().for_each(|value| append_header(headers, name.clone(), value));
    }
}

/// Appends a header; a value that is not valid in a header is omitted.
fn append_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value).or_else(|_| HeaderValue::from_bytes(value.as_bytes())) {
        headers.append(name, value);
    }
}

/// Percent-encodes the bytes that are invalid in a header name.
fn escape_key(key: &str) -> String {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes().map(|byte| if legal(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn client_supplied_user_headers_are_replaced() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-other", "stays")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-remote-extra-scopes", HeaderValue::from_static("all"));
        let extra = BTreeMap::from([("a.io/b%".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
        let groups = vec!["g".to_owned(), "h".to_owned()];
        set_user_headers(&mut headers, &User { name: "jane".into(), groups, uid: "7".into(), extra });
        let mut told: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        told.sort();
        let want = [
            "x-other: stays",
            "x-remote-extra-a.io%2fb%25: 1",
            "x-remote-extra-a.io%2fb%25: 2",
            "x-remote-group: g",
            "x-remote-group: h",
            "x-remote-uid: 7",
            "x-remote-user: jane",
        ];
        assert_eq!(told, want);
    }
}
