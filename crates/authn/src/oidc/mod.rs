//! Tokens of OpenID issuers: verified with the keys that the issuer publishes, and mapped to users as the settings say.

mod claims;
mod config;
mod expression;
mod keys;
mod provider;

use std::sync::Arc;

use apiserver_core::clock;
use async_trait::async_trait;
pub use config::{AuthenticationFile, ConfigError};
pub use expression::Expressions;
use provider::Provider;

use super::{AuthenticationErrors, AuthenticationResponse, AuthenticationResult, TokenAuthenticator};
use crate::tokens::Jwt;

/// The algorithms that tokens may be signed with. P-521 is not known here.
pub const ALGORITHMS: [&str; 8] = ["ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];
/// By how much clocks may differ for tokens that are not yet valid.
const LEEWAY: f64 = 60.0;

/// An issuer, and what its tokens mean.
#[derive(Clone, Debug, Default)]
pub struct JwtIssuer {
    /// As its tokens name it.
    pub url: String,
    /// Where it describes itself, if not below its URL.
    pub discovery_url: Option<String>,
    /// Who signs its certificate (PEM); without, this machine's authorities.
    pub authority: Option<String>,
    /// Tokens must be for one of these.
    pub audiences: Vec<String>,
    /// What the user is called.
    pub username: Mapping,
    /// Which groups the user is in.
    pub groups: Option<Mapping>,
    /// The claim with the user's uid.
    pub uid: Option<String>,
    /// Claims that must be there with these values.
    pub required: Vec<(String, String)>,
    /// What is said in expressions in place of claims.
    pub expressions: Arc<Expressions>,
    /// The algorithms that its tokens may be signed with.
    pub algorithms: Vec<String>,
}

/// A claim, and what is put before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The name of the claim.
    pub claim: String,
    /// Empty: nothing.
    pub prefix: String,
}

/// Knows the tokens of one issuer.
pub struct OpenId {
    issuer: JwtIssuer,
    provider: Arc<Provider>,
}

impl OpenId {
    /// The tokens of this issuer, which is asked for its keys from now on.
    pub fn new(issuer: JwtIssuer) -> Self {
        let provider = Provider::start(&issuer);
        Self { issuer, provider }
    }

    /// Verifies a token: its signature, issuer, audience and times.
    async fn verify(&self, jwt: &Jwt<'_>) -> Result<(), String> {
        if !self.issuer.algorithms.contains(&jwt.algorithm) {
            let (want, got) = (quoted(&self.issuer.algorithms), &jwt.algorithm);
            return Err(format!(
                "oidc: verify token: oidc: id token signed with unsupported algorithm, expected {want} got {got:?}"
            ));
        }
        let keys = self.provider.keys().ok_or("oidc: authenticator not initialized")?;
        keys.verify(jwt).await.map_err(|why| format!("oidc: verify token: failed to verify signature: {why}"))?;
        self.is_current(jwt).map_err(|why| format!("oidc: verify token: oidc: {why}"))
    }

    fn is_current(&self, jwt: &Jwt<'_>) -> Result<(), String> {
        let audiences = jwt.audiences();
        if !self.issuer.audiences.iter().any(|wanted| audiences.contains(wanted)) {
            let got = quoted(&audiences);
            return Err(match self.issuer.audiences.as_slice() {
                [one] => format!("expected audience {one:?} got {got}"),
                many => {
                    let mut many = many.to_vec();
                    many.sort_unstable();
                    format!("expected audience in {} got {got}", quoted(&many))
                }
            });
        }
        let now = clock::now().as_millisecond() as f64 / 1000.0;
        let expires = jwt.seconds("exp");
        if expires.is_none_or(|expires| expires < now) {
            return Err(format!("token is expired (Token Expiry: {})", moment(expires)));
        }
        match jwt.seconds("nbf") {
            Some(begins) if now + LEEWAY < begins => Err(format!(
                "current time {} before the nbf (not before) time: {}",
                moment(Some(now)),
                moment(Some(begins))
            )),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl TokenAuthenticator for OpenId {
    async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
        let Some(jwt) = Jwt::parse(token) else { return Ok(None) };
        let issuer = match jwt.text("iss") {
            // An old name that some tokens still have.
            "accounts.google.com" => "https://accounts.google.com",
            issuer => issuer,
        };
        if issuer != self.issuer.url {
            return Ok(None);
        }
        self.verify(&jwt).await.map_err(AuthenticationErrors::one)?;
        let user = claims::user(&self.issuer, &jwt.claims).map_err(AuthenticationErrors::one)?;
        Ok(Some(AuthenticationResponse::user(user)))
    }
}

/// Asks issuers in turn; the first error counts, because no two issuers have the same name.
pub struct Issuers(pub Vec<OpenId>);

#[async_trait]
impl TokenAuthenticator for Issuers {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        for issuer in &self.0 {
            if let Some(found) = TokenAuthenticator::authenticate_token(issuer, token, audiences).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// A list of texts as Go's `%q` writes it.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// A moment as Go's `%v` writes it.
fn moment(seconds: Option<f64>) -> String {
    let at = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds as i64).ok());
    at.map_or("0001-01-01 00:00:00 +0000 UTC".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string())
}
