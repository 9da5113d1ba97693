//! Users of `--basic-auth-file`, with HTTP basic authentication.

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, header};

use super::{
    AuthenticationErrors, AuthenticationRequest, AuthenticationResponse, AuthenticationResult, RequestAuthenticator,
    UserTable,
};

const SCHEME: &str = "basic ";

/// Authenticates the users of a file.
pub struct PasswordAuthenticator {
    table: UserTable,
}

impl PasswordAuthenticator {
    /// Authenticates the users of `table`.
    pub fn new(table: UserTable) -> Self {
        Self { table }
    }

    fn authenticate_password(&self, name: &str, password: &str) -> Option<AuthenticationResponse> {
        let (secret, user) = self.table.get(name)?;
        constant_time_eq(secret.as_bytes(), password.as_bytes()).then(|| AuthenticationResponse::for_user(user.clone()))
    }
}

#[async_trait]
impl RequestAuthenticator for PasswordAuthenticator {
    async fn authenticate(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let Some((name, password)) = basic_credentials(request.headers) else { return Ok(None) };
        match self.authenticate_password(&name, &password) {
            Some(response) => {
                request.headers.remove(header::AUTHORIZATION);
                Ok(Some(response))
            }
            None => Err(AuthenticationErrors::single("invalid username/password combination")),
        }
    }
}

/// Returns the user name and password of a request; `None` if they are absent or malformed.
fn basic_credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// Compares secrets in constant time.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
