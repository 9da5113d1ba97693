//! Who are you? A chain of links, assembled from the settings in upstream's order, each of which knows one kind of
//! credential; the first that recognizes its kind wins.
//!
//! The pipeline asks [`Authenticator::authenticate`] once per request. What a credential proves travels on as a [`User`];
//! the credential itself does not: its headers are gone afterwards. If every link fails the reasons are logged, and the client
//! is told nothing but 401. A request without any credential is anonymous where the settings allow that.

mod anonymous;
mod audience_agnostic;
mod authority;
mod bearer;
mod bootstrap_token;
mod cache;
mod certificate;
pub mod extra;
mod oidc;
mod password_file;
mod peer;
mod proxy;
mod reloadable;
mod response;
pub mod service_account;
mod settings;
mod token_file;
pub mod tokens;
mod user_table;
mod webhook;

use std::{sync::Arc, time::Duration};

pub use apiserver_core::user::{ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP};
use apiserver_core::{User, storage::ObjectStorage};
use async_trait::async_trait;
use audience_agnostic::AudienceAgnostic;
pub use authority::{Authority, AuthorityError, client_verifier};
use http::{HeaderMap, HeaderValue, header};
pub use oidc::{ALGORITHMS, AuthenticationFile, ConfigError, JwtIssuer, Mapping};
pub use peer::Peer;
pub use reloadable::ReloadableAuthenticator;
pub use response::{AuthenticationErrors, AuthenticationNotes, AuthenticationResponse, AuthenticationResult};
pub use settings::Authentication;
pub use tokens::{KeyError, Limits, PublicKey, Tokens};
pub use user_table::{TableError, UserTable};
pub use webhook::{ReviewVersion, TokenWebhook};

/// Where a user's `extra` says which credential was shown.
pub const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
/// How long it counts that a token was found to be good, as upstream has it.
const GOOD_TOKEN: Duration = Duration::from_secs(10);

/// What a request shows of its sender. A link takes away what it has used.
pub struct AuthenticationRequest<'a> {
    /// The request's headers.
    pub headers: &'a mut HeaderMap,
    /// The connection that it came on.
    pub peer: Option<&'a Peer>,
    /// The request's path.
    pub path: &'a str,
    /// Whom a token must be for; empty: anybody.
    pub audiences: &'a [String],
    /// What the client and the audit log are told.
    pub notes: AuthenticationNotes,
}

/// One kind of credential in requests.
#[async_trait]
trait RequestAuthenticator: Send + Sync {
    /// Who sent this; nobody, if it shows nothing of this kind; or why what it shows is not accepted.
    async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult;
}

/// One kind of token.
#[async_trait]
trait TokenAuthenticator: Send + Sync {
    /// Whose token it is; nobody's, if it is not of this kind; or why it is not accepted.
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult;
}

/// Finds out who sends a request.
pub struct Authenticator {
    links: Vec<Box<dyn RequestAuthenticator>>,
    anonymous: Option<anonymous::Anonymous>,
    audiences: Vec<String>,
    proxies: proxy::Headers,
}

impl Authenticator {
    /// The chain that the settings describe. Tokens of service accounts are looked up in `registry`.
    pub fn new(settings: &Authentication, tokens: Option<&Arc<Tokens>>, registry: &Arc<dyn ObjectStorage>) -> Self {
        let audiences = match tokens {
            _ if !settings.audiences.is_empty() => settings.audiences.clone(),
            Some(tokens) => tokens.audiences().to_vec(),
            None => Vec::new(),
        };
        let mut links: Vec<Box<dyn RequestAuthenticator>> = Vec::new();
        let proxies = proxy::Headers::of(settings);
        if let Some(authority) = &settings.proxy_ca {
            let link = proxy::Proxies::new(authority, settings.proxy_names.clone(), proxies.clone());
            links.push(Box::new(AudienceAgnostic::new(link, &audiences)));
        }
        if let Some(table) = &settings.passwords {
            links.push(Box::new(AudienceAgnostic::new(password_file::Passwords::new(table.clone()), &audiences)));
        }
        if let Some(authority) = &settings.client_ca {
            links.push(Box::new(certificate::Certificates::new(authority)));
        }
        let token_links = token_links(settings, tokens, registry, &audiences);
        if !token_links.is_empty() {
            let known = cache::Cache::new(AnyToken(token_links), cache::Lifetimes::of_good(GOOD_TOKEN));
            links.push(Box::new(bearer::Bearer::new(Arc::new(known))));
        }
        let anonymous = settings.anonymous.then(|| anonymous::Anonymous::new(&settings.anonymous_paths));
        Self { links, anonymous, audiences, proxies }
    }

    /// Who sent a request; 401 and nothing else is to be said where nobody knows.
    pub async fn authenticate(&self, shown: &mut AuthenticationRequest<'_>) -> Result<User, AuthenticationErrors> {
        let found = self.find(shown).await?.ok_or_else(AuthenticationErrors::none)?;
        if !acceptable(shown.audiences, &found.audiences) {
            let (got, want) = (&found.audiences, shown.audiences);
            return Err(AuthenticationErrors::one(format!(
                "unable to match the audience: {got:?} , accepted: {want:?}"
            )));
        }
        shown.headers.remove(header::AUTHORIZATION);
        self.proxies.clear(shown.headers);
        shown.notes.add(found.notes);
        Ok(found.user)
    }

    /// Whose token it is, as a review asks.
    pub async fn review(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(format!("Bearer {token}").as_bytes());
        headers.insert(header::AUTHORIZATION, value.map_err(|_| AuthenticationErrors::one(bearer::INVALID))?);
        let notes = AuthenticationNotes::default();
        self.find(&mut AuthenticationRequest { headers: &mut headers, peer: None, path: "", audiences, notes }).await
    }

    /// Whom tokens must be for, unless a review says otherwise.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Asks the links in turn. An error is remembered while others are asked, but a request that shows something wrong is
    /// not anonymous.
    async fn find(&self, shown: &mut AuthenticationRequest<'_>) -> AuthenticationResult {
        let mut reasons = AuthenticationErrors::none();
        for link in &self.links {
            match link.authenticate(shown).await {
                Ok(Some(found)) => return Ok(Some(found.known())),
                Ok(None) => {}
                Err(why) => reasons.add(why),
            }
        }
        match &self.anonymous {
            _ if !reasons.is_empty() => Err(reasons),
            Some(anonymous) => Ok(anonymous.found(shown)),
            None => Ok(None),
        }
    }
}

/// The kinds of tokens, those that are checked here before those that others check.
fn token_links(
    settings: &Authentication,
    tokens: Option<&Arc<Tokens>>,
    registry: &Arc<dyn ObjectStorage>,
    audiences: &[String],
) -> Vec<Box<dyn TokenAuthenticator>> {
    let mut links: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
    if let Some(table) = &settings.tokens {
        links.push(Box::new(AudienceAgnostic::new(token_file::Tokens::new(table.clone()), audiences)));
    }
    if let Some(tokens) = tokens {
        let accounts = || service_account::Accounts::new(tokens.clone(), registry.clone(), audiences.to_vec());
        links.push(Box::new(service_account::Legacy::new(accounts(), settings.lookup)));
        links.push(Box::new(service_account::Bound::new(accounts())));
    }
    if settings.bootstrap_tokens {
        let link = bootstrap_token::BootstrapTokens::new(registry.clone());
        links.push(Box::new(AudienceAgnostic::new(link, audiences)));
    }
    if !settings.issuers.is_empty() {
        let issuers = settings.issuers.iter().cloned().map(oidc::OpenId::new).collect();
        links.push(Box::new(AudienceAgnostic::new(oidc::Issuers(issuers), audiences)));
    }
    if let Some(webhook) = &settings.webhook {
        let lifetimes = webhook.lifetimes();
        links.push(Box::new(cache::Cache::new(webhook::Webhook::new(webhook.clone(), audiences), lifetimes)));
    }
    links
}

/// Asks the kinds of tokens in turn.
struct AnyToken(Vec<Box<dyn TokenAuthenticator>>);

#[async_trait]
impl TokenAuthenticator for AnyToken {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let mut reasons = AuthenticationErrors::none();
        for link in &self.0 {
            match link.authenticate_token(token, audiences).await {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(why) => reasons.add(why),
            }
        }
        if reasons.is_empty() { Ok(None) } else { Err(reasons) }
    }
}

fn acceptable(wanted: &[String], got: &[String]) -> bool {
    wanted.is_empty() || got.is_empty() || wanted.iter().any(|audience| got.contains(audience))
}
