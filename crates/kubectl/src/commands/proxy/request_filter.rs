//! Which requests the proxy passes on.

use regex_lite::Regex;

use crate::{
    errors::{CommandError, CommandResult},
    flag_set::FlagSet,
};

/// Regular expressions of paths, hosts and methods.
#[derive(Debug)]
pub struct RequestFilter {
    accept_paths: Vec<Regex>,
    reject_paths: Vec<Regex>,
    accept_hosts: Vec<Regex>,
    reject_methods: Vec<Regex>,
}

impl RequestFilter {
    /// The filter of the command's flags.
    pub fn from_flags(flags: &FlagSet) -> CommandResult<Self> {
        let list = |name: &str| parse_list(&flags.string(name));
        Ok(RequestFilter {
            accept_paths: list("accept-paths")?,
            reject_paths: list("reject-paths")?,
            accept_hosts: list("accept-hosts")?,
            reject_methods: list("reject-methods")?,
        })
    }

    /// Whether a request passes; `host` may have a port.
    pub fn accepts(&self, method: &str, path: &str, host: &str) -> bool {
        let host = strip_port(host);
        let matches = |list: &[Regex], text: &str| list.iter().any(|expression| expression.is_match(text));
        !matches(&self.reject_paths, path)
            && !matches(&self.reject_methods, method)
            && matches(&self.accept_paths, path)
            && matches(&self.accept_hosts, host)
    }
}

fn parse_list(text: &str) -> CommandResult<Vec<Regex>> {
    let parse =
        |part: &str| Regex::new(part).map_err(|error| CommandError::new(format!("Error compiling re: {error}")));
    if text.is_empty() { Ok(Vec::new()) } else { text.split(',').map(parse).collect() }
}

/// The host without its port; brackets of an IPv6 address go with a port only.
fn strip_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, _)) if name.starts_with('[') && name.ends_with(']') => &name[1..name.len() - 1],
        Some((name, _)) if !name.contains(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_win_over_acceptance() {
        let filter = RequestFilter {
            accept_paths: parse_list("^.*").unwrap(),
            reject_paths: parse_list("^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach").unwrap(),
            accept_hosts: parse_list("^localhost$").unwrap(),
            reject_methods: parse_list("^DELETE$").unwrap(),
        };
        assert!(filter.accepts("GET", "/api/v1/pods", "localhost:8001"));
        assert!(!filter.accepts("GET", "/api/v1/namespaces/a/pods/b/exec", "localhost"));
        assert!(!filter.accepts("DELETE", "/api/v1/pods", "localhost"));
        assert!(!filter.accepts("GET", "/api/v1/pods", "evil.example"));
        assert!(parse_list("(").is_err());
    }
}
