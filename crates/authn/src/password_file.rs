//! Names and passwords of a file (`--basic-auth-file`), shown as HTTP's basic authentication.

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, header};

use super::{
    AuthenticationErrors, AuthenticationRequest, AuthenticationResponse, AuthenticationResult, RequestAuthenticator,
    UserTable,
};

const SCHEME: &str = "basic ";

/// Knows the users of a file.
pub struct Passwords {
    table: UserTable,
}

impl Passwords {
    /// Those of this table.
    pub fn new(table: UserTable) -> Self {
        Self { table }
    }

    fn user(&self, name: &str, password: &str) -> Option<AuthenticationResponse> {
        let (secret, user) = self.table.get(name)?;
        same(secret.as_bytes(), password.as_bytes()).then(|| AuthenticationResponse::user(user.clone()))
    }
}

#[async_trait]
impl RequestAuthenticator for Passwords {
    async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some((name, password)) = given(shown.headers) else { return Ok(None) };
        match self.user(&name, &password) {
            Some(found) => {
                shown.headers.remove(header::AUTHORIZATION);
                Ok(Some(found))
            }
            None => Err(AuthenticationErrors::one("invalid username/password combination")),
        }
    }
}

/// The name and password that a request shows; nothing if they cannot be read.
fn given(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
