//! The challenges of a registry: the header `WWW-Authenticate`.

/// A challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthChallenge {
    /// A user and password.
    Basic,
    /// A token of a server.
    Bearer {
        /// The URL of the token server.
        realm: String,
        /// The service.
        service: String,
        /// The scope of the token.
        scope: String,
    },
}

/// Parses a header; `None` if nothing in it is understood.
pub fn parse_challenge(header: &str) -> Option<AuthChallenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(AuthChallenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (String::new(), String::new(), String::new());
    let mut rest = rest;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        match key.trim().trim_start_matches(',').trim() {
            "realm" => realm = value.into(),
            "service" => service = value.into(),
            "scope" => scope = value.into(),
            _ => {}
        }
        rest = next;
    }
    (!realm.is_empty()).then_some(AuthChallenge::Bearer { realm, service, scope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let header =
            r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push""#;
        let bearer = AuthChallenge::Bearer {
            realm: "https://auth.example/token".into(),
            service: "r.example".into(),
            scope: "repository:a/b:pull,push".into(),
        };
        assert_eq!(parse_challenge(header), Some(bearer));
        assert_eq!(parse_challenge("Basic realm=\"x\""), Some(AuthChallenge::Basic));
        assert_eq!(parse_challenge("Negotiate"), None);
        assert_eq!(parse_challenge("Bearer"), None);
    }
}
