//! Which credentials are accepted.

use super::{Authority, JwtIssuer, TokenWebhook, UserTable};

/// Which credentials are accepted, and what extension API servers must know to trust this one's requests.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Whether requests that show nothing are served …
    pub anonymous: bool,
    /// … and for which paths; none: all.
    pub anonymous_paths: Vec<String>,
    /// Who signs client certificates.
    pub client_ca: Option<Authority>,
    /// Who signs certificates of proxies.
    pub proxy_ca: Option<Authority>,
    /// The names of proxies; empty: any.
    pub proxy_names: Vec<String>,
    /// Headers with the user's name.
    pub user_headers: Vec<String>,
    /// Headers with the user's id.
    pub uid_headers: Vec<String>,
    /// Headers with groups.
    pub group_headers: Vec<String>,
    /// What headers with more about the user begin with.
    pub extra_prefixes: Vec<String>,
    /// Tokens of a file.
    pub tokens: Option<UserTable>,
    /// Names and passwords of a file.
    pub passwords: Option<UserTable>,
    /// Whom tokens must be for; empty: those of the tokens of service accounts.
    pub audiences: Vec<String>,
    /// Whether an old token's secret and account must exist.
    pub lookup: bool,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// Issuers whose tokens are accepted.
    pub issuers: Vec<JwtIssuer>,
    /// A webhook that knows tokens.
    pub webhook: Option<TokenWebhook>,
}

impl Default for Authentication {
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
