//! Authentication and authorization of the kubelet API: client certificates or bearer tokens (`TokenReview`),
//! authorized by `SubjectAccessReview`, with cached results. Anonymous requests are rejected.

mod attributes;
mod ttl_cache;

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, Method, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use ttl_cache::TtlCache;

/// TTL of authenticated tokens.
const TOKEN_TTL: Duration = Duration::from_secs(120);
/// TTL of allowed decisions.
const ALLOWED_TTL: Duration = Duration::from_secs(300);
/// TTL of denied decisions.
const DENIED_TTL: Duration = Duration::from_secs(30);

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
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
}

/// A request is rejected.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The request is not authenticated.
    Unauthorized,
    /// The user is not authorized; the response message.
    Forbidden(String),
    /// The review failed; the response message.
    Failed(String),
}

impl AuthError {
    /// Returns the response's status and message.
    pub fn status_and_message(&self) -> (StatusCode, &str) {
        match self {
            AuthError::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            AuthError::Forbidden(message) => (StatusCode::FORBIDDEN, message),
            AuthError::Failed(message) => (StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// Authenticates and authorizes through the API server.
pub struct KubeletAuth {
    client: kube::Client,
    node: String,
    tokens: TtlCache<[u8; 32], Option<UserInfo>>,
    decisions: TtlCache<(UserInfo, &'static str, &'static str), bool>,
}

impl KubeletAuth {
    /// Creates the authorizer of this node's API.
    pub fn new(client: kube::Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), tokens: TtlCache::default(), decisions: TtlCache::default() }
    }

    /// Authorizes a request. `certificate_user` is the user of the client certificate. Removes the bearer token from the headers.
    pub async fn authorize_request(
        &self,
        certificate_user: Option<&UserInfo>,
        method: &Method,
        path: &str,
        headers: &mut HeaderMap,
    ) -> Result<(), AuthError> {
        let token = bearer_token(headers);
        headers.remove(header::AUTHORIZATION);
        let user = match (certificate_user, token) {
            (Some(user), _) => user.clone(),
            (None, Some(token)) => self.authenticate_token(&token).await?.ok_or(AuthError::Unauthorized)?,
            (None, None) => return Err(AuthError::Unauthorized),
        };
        let (verb, subresources) = (attributes::request_verb(method), attributes::node_subresources(path));
        for subresource in &subresources {
            if self.review_access(&user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err(AuthError::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        )))
    }

    async fn authenticate_token(&self, token: &str) -> Result<Option<UserInfo>, AuthError> {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let response = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let response = response.map_err(|error| {
            tracing::warn!(%error, "kubelet: TokenReview failed");
            AuthError::Unauthorized
        })?;
        let status = response.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| UserInfo {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        self.tokens.insert(key, user.clone(), TOKEN_TTL);
        Ok(user)
    }

    async fn review_access(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, AuthError> {
        let key = (user.clone(), verb, subresource);
        if let Some(known) = self.decisions.get(&key) {
            return Ok(known);
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.into()),
            name: Some(self.node.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let response = reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(%error, user = user.name, verb, subresource, "kubelet: SubjectAccessReview failed");
            let name = &user.name;
            AuthError::Failed(format!(
                "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
            ))
        })?;
        let allowed = response.status.is_some_and(|status| status.allowed);
        self.decisions.insert(key, allowed, if allowed { ALLOWED_TTL } else { DENIED_TTL });
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

#[cfg(test)]
mod tests;
