//! Rewrites links in proxied responses to go through the proxy.

use super::clean_path;

/// Rewrites the links of one response.
#[derive(Debug, Default)]
pub struct LinkRewriter {
    /// The path prefix up to and including `proxy`.
    pub prefix: String,
    /// `host:port` of the backend.
    pub backend: String,
    /// The host of the client's request.
    pub host: String,
}

impl LinkRewriter {
    /// Rewrites a link to the backend; relative links and those to other hosts stay.
    pub fn rewrite_link(&self, link: &str) -> String {
        let (scheme, after) = match link.split_once("://") {
            Some((scheme, after)) if is_scheme(scheme) => (scheme, Some(after)),
            _ => ("", link.strip_prefix("//")),
        };
        let (host, path) = match after {
            Some(after) => after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len())),
            None => ("", link),
        };
        let elsewhere = !host.is_empty() && host != self.backend && host != self.host;
        if elsewhere || !path.starts_with('/') {
            return link.to_owned();
        }
        // A link with the client's host keeps it.
        let start = match (host, scheme) {
            (host, _) if host.is_empty() || host != self.host => String::new(),
            (host, "") => format!("//{host}"),
            (host, scheme) => format!("{scheme}://{host}"),
        };
        if path.starts_with(&self.prefix) {
            return format!("{start}{path}");
        }
        let (path, rest) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
        format!("{start}{}{rest}", clean_path(&format!("{}{path}", self.prefix)))
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_prefixed_with_the_proxy_path() {
        let links = LinkRewriter {
            prefix: "/api/v1/namespaces/a/pods/p/proxy".into(),
            backend: "10.0.0.1:80".into(),
            host: "localhost:8001".into(),
        };
        let check = |link: &str, want: &str| assert_eq!(links.rewrite_link(link), want, "{link}");
        check("/x/y/?q=/z", "/api/v1/namespaces/a/pods/p/proxy/x/y/?q=/z");
        check("http://10.0.0.1:80/x", "/api/v1/namespaces/a/pods/p/proxy/x");
        check("http://localhost:8001/x", "http://localhost:8001/api/v1/namespaces/a/pods/p/proxy/x");
        check("/api/v1/namespaces/a/pods/p/proxy/x", "/api/v1/namespaces/a/pods/p/proxy/x");
        for same in ["x/y", "", "#top", "https://example.com/x", "//example.com/x", "mailto:a@b", "http://"] {
            check(same, same);
        }
    }
}
