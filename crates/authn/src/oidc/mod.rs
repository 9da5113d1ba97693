//! OIDC: tokens verified with the keys that the issuer publishes, and mapped to users by claim mappings and CEL
//! expressions.

mod claims;
mod config;
mod config_error;
mod expression;
mod keys;
mod provider;

use std::sync::Arc;

use apiserver_core::clock;
use async_trait::async_trait;
pub use config::AuthenticationFile;
pub use config_error::AuthenticationConfigError;
pub use expression::IssuerExpressions;
use provider::OidcProvider;

use super::{AuthenticationErrors, AuthenticationResponse, AuthenticationResult, TokenAuthenticator, format_quoted};
use crate::tokens::Jwt;

/// The supported signature algorithms; ES512 is not supported.
pub const ALGORITHMS: [&str; 8] = ["ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];
/// Tolerated clock difference for `nbf`, in seconds.
const CLOCK_SKEW_SECONDS: f64 = 60.0;

/// An issuer and the mapping of its tokens.
#[derive(Clone, Debug, Default)]
pub struct JwtIssuer {
    /// Issuer URL, the `iss` claim.
    pub url: String,
    /// URL of the discovery document, if it is not below the issuer URL.
    pub discovery_url: Option<String>,
    /// CA bundle of the issuer's certificate (PEM); without one, the system's CAs.
    pub authority: Option<String>,
    /// Accepted audiences.
    pub audiences: Vec<String>,
    /// Claim mapping of the user name.
    pub username: ClaimMapping,
    /// Claim mapping of the groups.
    pub groups: Option<ClaimMapping>,
    /// Claim with the UID.
    pub uid: Option<String>,
    /// Claims that must have these values.
    pub required: Vec<(String, String)>,
    /// CEL mappings and validation rules.
    pub expressions: Arc<IssuerExpressions>,
    /// Accepted signature algorithms.
    pub algorithms: Vec<String>,
}

/// A claim and a prefix for its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimMapping {
    /// Name of the claim.
    pub claim: String,
    /// Prefix of the value.
    pub prefix: String,
}

/// Authenticates the tokens of one issuer.
pub struct OidcAuthenticator {
    issuer: JwtIssuer,
    provider: Arc<OidcProvider>,
}

impl OidcAuthenticator {
    /// Starts discovery of the issuer's keys in the background.
    pub fn new(issuer: JwtIssuer) -> Self {
        let provider = OidcProvider::start_discovery(&issuer);
        Self { issuer, provider }
    }

    /// Verifies the signature, issuer, audience and validity of a token.
    async fn verify_token(&self, jwt: &Jwt<'_>) -> Result<(), AuthenticationErrors> {
        if !self.issuer.algorithms.contains(&jwt.algorithm) {
            let (want, got) = (format_quoted(&self.issuer.algorithms), &jwt.algorithm);
            return Err(format!(
                "oidc: verify token: oidc: id token signed with unsupported algorithm, expected {want} got {got:?}"
            )
            .into());
        }
        let keys = self.provider.keys().ok_or("oidc: authenticator not initialized")?;
        keys.verify_signature(jwt)
            .await
            .map_err(|error| format!("oidc: verify token: failed to verify signature: {error}"))?;
        self.verify_claims(jwt).map_err(|error| format!("oidc: verify token: oidc: {error}").into())
    }

    fn verify_claims(&self, jwt: &Jwt<'_>) -> Result<(), AuthenticationErrors> {
        let audiences = jwt.audiences();
        if !self.issuer.audiences.iter().any(|accepted| audiences.contains(accepted)) {
            let got = format_quoted(&audiences);
            return Err(match self.issuer.audiences.as_slice() {
                [one] => format!("expected audience {one:?} got {got}").into(),
                many => {
                    let mut many = many.to_vec();
                    many.sort_unstable();
                    format!("expected audience in {} got {got}", format_quoted(&many)).into()
                }
            });
        }
        let now = clock::now().as_millisecond() as f64 / 1000.0;
        let expiry = jwt.time_claim("exp");
        if expiry.is_none_or(|expiry| expiry < now) {
            return Err(format!("token is expired (Token Expiry: {})", format_time(expiry)).into());
        }
        match jwt.time_claim("nbf") {
            Some(not_before) if now + CLOCK_SKEW_SECONDS < not_before => Err(format!(
                "current time {} before the nbf (not before) time: {}",
                format_time(Some(now)),
                format_time(Some(not_before))
            )
            .into()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl TokenAuthenticator for OidcAuthenticator {
    async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
        let Some(jwt) = Jwt::parse(token) else { return Ok(None) };
        let issuer = match jwt.string_claim("iss") {
            // The issuer of older Google tokens.
            "accounts.google.com" => "https://accounts.google.com",
            issuer => issuer,
        };
        if issuer != self.issuer.url {
            return Ok(None);
        }
        self.verify_token(&jwt).await?;
        let user = claims::user_from_claims(&self.issuer, &jwt.claims)?;
        Ok(Some(AuthenticationResponse::for_user(user)))
    }
}

/// Calls issuers in turn; the first error is final, because issuer URLs are unique.
pub struct OidcAuthenticators(pub Vec<OidcAuthenticator>);

#[async_trait]
impl TokenAuthenticator for OidcAuthenticators {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        for issuer in &self.0 {
            if let Some(response) = TokenAuthenticator::authenticate_token(issuer, token, audiences).await? {
                return Ok(Some(response));
            }
        }
        Ok(None)
    }
}

/// Formats a time as Go's `%v`.
fn format_time(seconds: Option<f64>) -> String {
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds as i64).ok());
    time.map_or("0001-01-01 00:00:00 +0000 UTC".to_owned(), |time| {
        time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
    })
}
