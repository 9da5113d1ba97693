//! Tokens of a file (`--token-auth-file`), which count as long as the server runs.

use async_trait::async_trait;

use super::{AuthenticationResponse, AuthenticationResult, TokenAuthenticator, UserTable};

/// Knows the tokens of a file.
pub struct Tokens {
    table: UserTable,
}

impl Tokens {
    /// Those of this table.
    pub fn new(table: UserTable) -> Self {
        Self { table }
    }
}

#[async_trait]
impl TokenAuthenticator for Tokens {
    async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
        Ok(self.table.get(token).map(|(_, user)| AuthenticationResponse::user(user.clone())))
    }
}
