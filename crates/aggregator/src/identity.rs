//! Who asks, in the headers that aggregated servers read. What a client says of itself in them never gets past here.

use apiserver_core::User;
use http::{HeaderMap, HeaderName, HeaderValue};

const NAME: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Says who asks, and nothing else.
pub fn tell(headers: &mut HeaderMap, user: &User) {
    let claimed = |name: &&HeaderName| [&NAME, &UID, &GROUP].contains(name) || name.as_str().starts_with(EXTRA);
    let claimed: Vec<HeaderName> = headers.keys().filter(claimed).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    append(headers, NAME, &user.name);
    if !user.uid.is_empty() {
        append(headers, UID, &user.uid);
    }
    user.groups.iter().for_each(|group| append(headers, GROUP, group));
    for (key, values) in &user.extra {
        // Escaped, it is nothing but what names of headers may have.
        let Ok(name) = HeaderName::from_bytes(format!("{EXTRA}{}", escaped(key)).as_bytes()) else { continue };
        values.iter().for_each(|value| append(headers, name.clone(), value));
    }
}

/// A value that is no header text is left out: the other server then knows less, not something else.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value).or_else(|_| HeaderValue::from_bytes(value.as_bytes())) {
        headers.append(name, value);
    }
}

/// A key with whatever the name of a header may not have as `%XX`.
fn escaped(key: &str) -> String {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes().map(|byte| if legal(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_what_is_known_is_told() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-other", "stays")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-remote-extra-scopes", HeaderValue::from_static("all"));
        let extra = BTreeMap::from([("a.io/b%".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
        let groups = vec!["g".to_owned(), "h".to_owned()];
        tell(&mut headers, &User { name: "jane".into(), groups, uid: "7".into(), extra });
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
