//! Parses `Impersonate-*` headers.

use std::collections::BTreeMap;

use api::status::Status;
use apiserver_core::User;
use authn::extra_headers;
use http::{HeaderMap, HeaderName};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Removes the `Impersonate-*` headers and returns the user that they name.
pub fn take_impersonation_headers(headers: &mut HeaderMap) -> Result<Option<User>, Status> {
    // Most requests have none of them.
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let user = User {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        extra: extra_headers::parse_extra_headers(headers, &[EXTRA.to_owned()]),
    };
    if user.name.is_empty() {
        let alone = user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty();
        let refused =
            || Status::bad_request(format!("requested {} without impersonating a user name", go_user_info(&user)));
        return if alone { Ok(None) } else { Err(refused()) };
    }
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| is_impersonation_header(name.as_str())).cloned().collect();
    names.into_iter().for_each(|name| drop(headers.remove(name)));
    Ok(Some(user))
}

fn is_impersonation_header(name: &str) -> bool {
    matches!(name, USER | GROUP | UID) || name.starts_with(EXTRA)
}

/// A user as Go formats it, for upstream's error text.
fn go_user_info(user: &User) -> String {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let map = |extra: &BTreeMap<String, Vec<String>>| {
        let pairs: Vec<String> = extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
        format!("map[string][]string{{{}}}", pairs.join(", "))
    };
    let extra = if user.extra.is_empty() { "map[string][]string(nil)".to_owned() } else { map(&user.extra) };
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}", user.name, user.uid)
}
