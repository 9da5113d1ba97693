//! Tokens of `--token-auth-file`, which are valid as long as the server runs.

use async_trait::async_trait;

use super::{AuthenticationResponse, AuthenticationResult, TokenAuthenticator, UserTable};

/// Authenticates the tokens of a file.
pub struct TokenFileAuthenticator {
    table: UserTable,
}

impl TokenFileAuthenticator {
    /// Authenticates the tokens of `table`.
    pub fn new(table: UserTable) -> Self {
        Self { table }
    }
}

#[async_trait]
impl TokenAuthenticator for TokenFileAuthenticator {
    async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
        Ok(self.table.get(token).map(|(_, user)| AuthenticationResponse::for_user(user.clone())))
    }
}
