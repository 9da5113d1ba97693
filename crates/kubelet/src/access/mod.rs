//! Who may use this kubelet's HTTPS API: a client shows a certificate of the cluster's CA or a bearer token, and the API
//! server is asked whose token it is (`TokenReview`) and whether its owner may (`SubjectAccessReview`). Answers are
//! remembered for a while. Nobody is served who shows nothing.

mod attributes;
mod memory;

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, Method, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use memory::Memory;

/// How long it counts whose token it is, …
const TOKEN: Duration = Duration::from_secs(120);
/// … that somebody may, …
const ALLOWED: Duration = Duration::from_secs(300);
/// … and that somebody may not.
const DENIED: Duration = Duration::from_secs(30);

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The user's name.
    pub name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whom a certificate names that TLS has verified.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let groups = groups.chain(["system:authenticated"]).map(str::to_owned).collect();
        Some(Self { name, groups, ..Self::default() }).filter(|user| !user.name.is_empty())
    }
}

/// Why a request is not served.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody knows who sent it.
    Unauthorized,
    /// Its sender may not; what is said about it.
    Forbidden(String),
    /// Nobody could be asked.
    Failed(String),
}

impl Refused {
    /// What the client is told.
    pub fn answer(&self) -> (StatusCode, &str) {
        match self {
            Refused::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Refused::Forbidden(message) => (StatusCode::FORBIDDEN, message),
            Refused::Failed(message) => (StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// Asks the API server who and whether.
pub struct Access {
    client: kube::Client,
    node: String,
    tokens: Memory<[u8; 32], Option<User>>,
    decisions: Memory<(User, &'static str, &'static str), bool>,
}

impl Access {
    /// For the API of this node.
    pub fn new(client: kube::Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), tokens: Memory::default(), decisions: Memory::default() }
    }

    /// Whether a request is to be served. `shown` is whom the connection's certificate names. The token is gone afterwards.
    pub async fn check(
        &self,
        shown: Option<&User>,
        method: &Method,
        path: &str,
        headers: &mut HeaderMap,
    ) -> Result<(), Refused> {
        let token = bearer(headers);
        headers.remove(header::AUTHORIZATION);
        let user = match (shown, token) {
            (Some(user), _) => user.clone(),
            (None, Some(token)) => self.owner(&token).await?.ok_or(Refused::Unauthorized)?,
            (None, None) => return Err(Refused::Unauthorized),
        };
        let (verb, subresources) = (attributes::verb(method), attributes::subresources(path));
        for subresource in &subresources {
            if self.may(&user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err(Refused::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        )))
    }

    async fn owner(&self, token: &str) -> Result<Option<User>, Refused> {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| {
            tracing::warn!(%error, "the API server cannot be asked whose token it is");
            Refused::Unauthorized
        })?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        self.tokens.put(key, user.clone(), TOKEN);
        Ok(user)
    }

    async fn may(&self, user: &User, verb: &'static str, subresource: &'static str) -> Result<bool, Refused> {
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
        let answer = reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(%error, user = user.name, verb, subresource, "authorization error");
            let name = &user.name;
            Refused::Failed(format!(
                "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
            ))
        })?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.decisions.put(key, allowed, if allowed { ALLOWED } else { DENIED });
        Ok(allowed)
    }
}

/// The token that a request shows.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

#[cfg(test)]
mod tests;
