//! Tokens of a file (`--token-auth-file`), which count as long as the server runs.

use async_trait::async_trait;

use super::{Found, TokenLink, UserTable, Verdict};

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
impl TokenLink for Tokens {
    async fn verify(&self, token: &str, _: &[String]) -> Verdict {
        Ok(self.table.get(token).map(|(_, user)| Found::user(user.clone())))
    }
}
