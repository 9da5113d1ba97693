//! Authentication by client certificate or `TokenReview`, authorization by `SubjectAccessReview`, with cached results.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use ttl_cache::TtlCache;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Maximum number of cached reviews of each kind.
const CACHED_REVIEWS: u64 = 1024;

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// The user's uid.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// More attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Returns the user of a verified client certificate.
    pub fn from_certificate(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let groups = groups.chain(["system:authenticated"]).map(str::to_owned).collect();
        Some(Self { name, groups, ..Self::default() }).filter(|user| !user.name.is_empty())
    }

    /// Returns the user of requests without credentials.
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".into(), groups, ..Self::default() }
    }
}

/// A bearer token that is invalid or could not be reviewed.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenRejected;

/// The access that a request needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessAttributes {
    /// A subresource of a node.
    Node {
        /// The verb.
        verb: &'static str,
        /// The node's name.
        node: String,
        /// The subresource.
        subresource: &'static str,
    },
    /// A path.
    NonResource {
        /// The verb.
        verb: String,
        /// The path.
        path: String,
    },
}

/// Lifetimes of cached results.
#[derive(Clone, Copy, Debug)]
pub struct DelegatedAuthConfig {
    /// Reviewed tokens.
    pub token_ttl: Duration,
    /// Allowed access.
    pub allowed_ttl: Duration,
    /// Denied access.
    pub denied_ttl: Duration,
}

impl Default for DelegatedAuthConfig {
    /// Upstream's lifetimes of components: ten seconds each.
    fn default() -> Self {
        let ttl = Duration::from_secs(10);
        Self { token_ttl: ttl, allowed_ttl: ttl, denied_ttl: ttl }
    }
}

/// Authenticates and authorizes requests through the API server.
pub struct DelegatedAuth {
    client: Client,
    config: DelegatedAuthConfig,
    tokens: TtlCache<[u8; 32], Option<UserInfo>>,
    decisions: TtlCache<(UserInfo, AccessAttributes), bool>,
}

impl DelegatedAuth {
    /// Sends reviews with `client`.
    pub fn new(client: Client, config: DelegatedAuthConfig) -> Self {
        let (tokens, decisions) = (TtlCache::with_capacity(CACHED_REVIEWS), TtlCache::with_capacity(CACHED_REVIEWS));
        Self { client, config, tokens, decisions }
    }

    /// Returns the user of a request: that of its client certificate, or of its bearer token, which is removed from the
    /// headers. `None` without credentials.
    pub async fn authenticate(
        &self,
        certificate_user: Option<&UserInfo>,
        headers: &mut HeaderMap,
    ) -> Result<Option<UserInfo>, TokenRejected> {
        let token = bearer_token(headers);
        headers.remove(header::AUTHORIZATION);
        match (certificate_user, token) {
            (Some(user), _) => Ok(Some(user.clone())),
            (None, Some(token)) => self.review_token(&token).await?.ok_or(TokenRejected).map(Some),
            (None, None) => Ok(None),
        }
    }

    async fn review_token(&self, token: &str) -> Result<Option<UserInfo>, TokenRejected> {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let response = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let response = response.map_err(|error| {
            tracing::warn!(%error, "delegated authentication: TokenReview failed");
            TokenRejected
        })?;
        let status = response.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| UserInfo {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        self.tokens.put(key, user.clone(), self.config.token_ttl);
        Ok(user)
    }

    /// Whether the user has the access.
    pub async fn authorize(&self, user: &UserInfo, access: &AccessAttributes) -> Result<bool, kube::Error> {
        let key = (user.clone(), access.clone());
        if let Some(known) = self.decisions.get(&key) {
            return Ok(known);
        }
        let mut spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match access {
            AccessAttributes::Node { verb, node, subresource } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    verb: Some((*verb).into()),
                    version: Some("v1".into()),
                    resource: Some("nodes".into()),
                    subresource: Some((*subresource).into()),
                    name: Some(node.clone()),
                    ..ResourceAttributes::default()
                });
            }
            AccessAttributes::NonResource { verb, path } => {
                spec.non_resource_attributes =
                    Some(NonResourceAttributes { verb: Some(verb.clone()), path: Some(path.clone()) });
            }
        }
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let response = reviews.create(&PostParams::default(), &review).await.inspect_err(|error| {
            tracing::warn!(%error, user = user.name, ?access, "delegated authorization: SubjectAccessReview failed");
        })?;
        let allowed = response.status.is_some_and(|status| status.allowed);
        let ttl = if allowed { self.config.allowed_ttl } else { self.config.denied_ttl };
        self.decisions.put(key, allowed, ttl);
        Ok(allowed)
    }
}

/// Returns the bearer token of a request.
fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}
