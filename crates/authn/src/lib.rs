//! Authentication: a union of authenticators, assembled from the configuration in upstream's order, each for one type
//! of credential. The first that recognizes its credential wins.
//!
//! The pipeline calls [`Authenticator::authenticate_request`] once per request. The result is a [`User`]; the
//! credential's headers are stripped. If all authenticators fail, the errors are logged and the client receives a plain
//! 401. A request without credentials is anonymous, where the configuration allows that.

mod anonymous;
mod audience_agnostic;
mod bearer;
mod bootstrap_token;
mod ca_bundle;
mod cache;
mod certificate;
mod client_verifier;
mod config;
pub mod extra_headers;
mod front_proxy;
mod oidc;
mod password_file;
mod peer;
mod reloadable;
mod response;
pub mod service_account;
mod token_file;
pub mod tokens;
mod user_table;
mod webhook;

use std::{sync::Arc, time::Duration};

pub use apiserver_core::user::{ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP};
use apiserver_core::{User, storage::ObjectStorage};
use async_trait::async_trait;
use audience_agnostic::AudienceAgnostic;
pub use ca_bundle::{CaBundle, CaBundleError};
pub use cache::RandomSourceError;
pub use client_verifier::{ClientCertificateVerifier, client_verifier};
pub use config::AuthenticationConfig;
use http::{HeaderMap, HeaderValue, header};
pub use oidc::{ALGORITHMS, AuthenticationConfigError, AuthenticationFile, ClaimMapping, JwtIssuer};
pub use peer::ConnectionPeer;
pub use reloadable::ReloadableAuthenticator;
pub use response::{AuthenticationErrors, AuthenticationNotes, AuthenticationResponse, AuthenticationResult};
pub use tokens::{KeyError, PublicKey, TokenIssuer, TokenLimits};
pub use user_table::{UserTable, UserTableError};
pub use webhook::{ReviewVersion, TokenWebhook};

/// The `extra` key that identifies the credential.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// TTL of successful token authentications; upstream's value.
const TOKEN_SUCCESS_TTL: Duration = Duration::from_secs(10);

/// The parts of a request that authenticators read. They strip the credential that they accept.
pub struct AuthenticationRequest<'a> {
    /// Request headers.
    pub headers: &'a mut HeaderMap,
    /// The connection of the request.
    pub peer: Option<&'a ConnectionPeer>,
    /// Request path.
    pub path: &'a str,
    /// The accepted audiences; empty accepts any.
    pub audiences: &'a [String],
    /// Audit annotations and warnings.
    pub notes: AuthenticationNotes,
}

/// Authenticates requests by one type of credential.
#[async_trait]
trait RequestAuthenticator: Send + Sync {
    /// `Ok(None)`: the request carries no credential of this type. `Err`: the credential is invalid.
    async fn authenticate(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult;
}

/// Authenticates one type of bearer token.
#[async_trait]
trait TokenAuthenticator: Send + Sync {
    /// `Ok(None)`: the token is not of this type. `Err`: the token is invalid.
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult;
}

/// Authenticates requests by all configured credentials.
pub struct Authenticator {
    authenticators: Vec<Box<dyn RequestAuthenticator>>,
    anonymous: Option<anonymous::AnonymousAuthenticator>,
    audiences: Vec<String>,
    proxies: front_proxy::ProxyHeaders,
}

impl Authenticator {
    /// Builds the authenticators that the configuration enables. Service account tokens are looked up in `registry`.
    pub fn new(
        config: &AuthenticationConfig,
        tokens: Option<&Arc<TokenIssuer>>,
        registry: &Arc<dyn ObjectStorage>,
    ) -> Result<Self, RandomSourceError> {
        let audiences = match tokens {
            _ if !config.audiences.is_empty() => config.audiences.clone(),
            Some(tokens) => tokens.audiences().to_vec(),
            None => Vec::new(),
        };
        let mut authenticators: Vec<Box<dyn RequestAuthenticator>> = Vec::new();
        let proxies = front_proxy::ProxyHeaders::from_config(config);
        if let Some(ca_bundle) = &config.proxy_ca {
            let proxy = front_proxy::ProxyAuthenticator::new(ca_bundle, config.proxy_names.clone(), proxies.clone());
            authenticators.push(Box::new(AudienceAgnostic::new(proxy, &audiences)));
        }
        if let Some(table) = &config.passwords {
            authenticators.push(Box::new(AudienceAgnostic::new(
                password_file::PasswordAuthenticator::new(table.clone()),
                &audiences,
            )));
        }
        if let Some(ca_bundle) = &config.client_ca {
            authenticators.push(Box::new(certificate::CertificateAuthenticator::new(ca_bundle)));
        }
        let token_authenticators = token_authenticators(config, tokens, registry, &audiences)?;
        if !token_authenticators.is_empty() {
            let ttls = cache::TokenCacheTtls::successes_only(TOKEN_SUCCESS_TTL);
            let cached = cache::TokenCache::new(TokenAuthenticatorUnion(token_authenticators), ttls)?;
            authenticators.push(Box::new(bearer::BearerAuthenticator::new(Arc::new(cached))));
        }
        let anonymous = config.anonymous.then(|| anonymous::AnonymousAuthenticator::new(&config.anonymous_paths));
        Ok(Self { authenticators, anonymous, audiences, proxies })
    }

    /// Authenticates a request and strips its credentials. Errors are for the log; the client receives 401.
    pub async fn authenticate_request(
        &self,
        request: &mut AuthenticationRequest<'_>,
    ) -> Result<User, AuthenticationErrors> {
        let response = self.find_response(request).await?.ok_or_else(AuthenticationErrors::none)?;
        if !audiences_overlap(request.audiences, &response.audiences) {
            let (got, want) = (&response.audiences, request.audiences);
            return Err(AuthenticationErrors::single(format!(
                "unable to match the audience: {got:?} , accepted: {want:?}"
            )));
        }
        request.headers.remove(header::AUTHORIZATION);
        self.proxies.strip_headers(request.headers);
        request.notes.merge(response.notes);
        Ok(response.user)
    }

    /// Authenticates the token of a TokenReview.
    pub async fn review_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(format!("Bearer {token}").as_bytes());
        headers.insert(header::AUTHORIZATION, value.map_err(|_| AuthenticationErrors::single(bearer::INVALID_TOKEN))?);
        let notes = AuthenticationNotes::default();
        self.find_response(&mut AuthenticationRequest { headers: &mut headers, peer: None, path: "", audiences, notes })
            .await
    }

    /// The audiences that tokens must have, unless a review names others.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Calls the authenticators in turn. Errors are collected while others are tried; a request with an invalid
    /// credential is not anonymous.
    async fn find_response(&self, request: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let mut errors = AuthenticationErrors::none();
        for authenticator in &self.authenticators {
            match authenticator.authenticate(request).await {
                Ok(Some(response)) => return Ok(Some(response.with_authenticated_group())),
                Ok(None) => {}
                Err(error) => errors.merge(error),
            }
        }
        match &self.anonymous {
            _ if !errors.is_empty() => Err(errors),
            Some(anonymous) => Ok(anonymous.anonymous_response(request)),
            None => Ok(None),
        }
    }
}

/// The token authenticators: local ones first, then those that call other servers.
fn token_authenticators(
    config: &AuthenticationConfig,
    tokens: Option<&Arc<TokenIssuer>>,
    registry: &Arc<dyn ObjectStorage>,
    audiences: &[String],
) -> Result<Vec<Box<dyn TokenAuthenticator>>, RandomSourceError> {
    let mut authenticators: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
    if let Some(table) = &config.tokens {
        authenticators
            .push(Box::new(AudienceAgnostic::new(token_file::TokenFileAuthenticator::new(table.clone()), audiences)));
    }
    if let Some(tokens) = tokens {
        let accounts =
            || service_account::ServiceAccountStore::new(tokens.clone(), registry.clone(), audiences.to_vec());
        authenticators.push(Box::new(service_account::LegacyTokenAuthenticator::new(accounts(), config.lookup)));
        authenticators.push(Box::new(service_account::BoundTokenAuthenticator::new(accounts())));
    }
    if config.bootstrap_tokens {
        let bootstrap = bootstrap_token::BootstrapTokenAuthenticator::new(registry.clone());
        authenticators.push(Box::new(AudienceAgnostic::new(bootstrap, audiences)));
    }
    if !config.issuers.is_empty() {
        let issuers = config.issuers.iter().cloned().map(oidc::OidcAuthenticator::new).collect();
        authenticators.push(Box::new(AudienceAgnostic::new(oidc::OidcAuthenticators(issuers), audiences)));
    }
    if let Some(webhook) = &config.webhook {
        let authenticator = webhook::WebhookAuthenticator::new(webhook.clone(), audiences);
        authenticators.push(Box::new(cache::TokenCache::new(authenticator, webhook.cache_ttls())?));
    }
    Ok(authenticators)
}

/// Calls token authenticators in turn.
struct TokenAuthenticatorUnion(Vec<Box<dyn TokenAuthenticator>>);

#[async_trait]
impl TokenAuthenticator for TokenAuthenticatorUnion {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let mut errors = AuthenticationErrors::none();
        for authenticator in &self.0 {
            match authenticator.authenticate_token(token, audiences).await {
                Ok(Some(response)) => return Ok(Some(response)),
                Ok(None) => {}
                Err(error) => errors.merge(error),
            }
        }
        if errors.is_empty() { Ok(None) } else { Err(errors) }
    }
}

fn audiences_overlap(accepted: &[String], got: &[String]) -> bool {
    accepted.is_empty() || got.is_empty() || accepted.iter().any(|audience| got.contains(audience))
}

/// Formats a list as Go's `%q`.
fn format_quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
