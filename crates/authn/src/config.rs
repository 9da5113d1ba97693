//! Authentication configuration.

use super::{CaBundle, JwtIssuer, TokenWebhook, UserTable};

/// The accepted credentials, and the front-proxy settings that extension API servers read.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// Whether anonymous requests are allowed.
    pub anonymous: bool,
    /// The paths of anonymous requests; empty allows all.
    pub anonymous_paths: Vec<String>,
    /// CA bundle of client certificates.
    pub client_ca: Option<CaBundle>,
    /// CA bundle of front-proxy certificates.
    pub proxy_ca: Option<CaBundle>,
    /// Common names of front proxies; empty allows any.
    pub proxy_names: Vec<String>,
    /// Headers with the user name.
    pub user_headers: Vec<String>,
    /// Headers with the UID.
    pub uid_headers: Vec<String>,
    /// Headers with groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with extra attributes.
    pub extra_prefixes: Vec<String>,
    /// Tokens of `--token-auth-file`.
    pub tokens: Option<UserTable>,
    /// Users of `--basic-auth-file`.
    pub passwords: Option<UserTable>,
    /// Audiences of tokens; empty uses those of service account tokens.
    pub audiences: Vec<String>,
    /// Whether the Secret and ServiceAccount of a legacy token must exist.
    pub lookup: bool,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// OIDC issuers.
    pub issuers: Vec<JwtIssuer>,
    /// Token webhook.
    pub webhook: Option<TokenWebhook>,
}

impl Default for AuthenticationConfig {
    fn default() -> Self {
        Self {
            anonymous: true,
            anonymous_paths: Vec::new(),
            client_ca: None,
            proxy_ca: None,
            proxy_names: Vec::new(),
            user_headers: Vec::new(),
            uid_headers: Vec::new(),
            group_headers: Vec::new(),
            extra_prefixes: Vec::new(),
            tokens: None,
            passwords: None,
            audiences: Vec::new(),
            lookup: true,
            bootstrap_tokens: false,
            issuers: Vec::new(),
            webhook: None,
        }
    }
}
