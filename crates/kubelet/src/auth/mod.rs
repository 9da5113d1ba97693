//! Authentication and authorization of the kubelet API: client certificates or bearer tokens (`TokenReview`),
//! authorized by `SubjectAccessReview`, with cached results. Anonymous requests are rejected.

mod attributes;

use std::time::Duration;

use component_server::{AccessAttributes, DelegatedAuth, DelegatedAuthConfig, UserInfo};
use http::{HeaderMap, Method, StatusCode};

/// Upstream's lifetimes of the kubelet's cached reviews.
const AUTH_CONFIG: DelegatedAuthConfig = DelegatedAuthConfig {
    token_ttl: Duration::from_secs(120),
    allowed_ttl: Duration::from_secs(300),
    denied_ttl: Duration::from_secs(30),
};

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

/// Authorizes requests for the subresources of one node.
pub struct KubeletAuth {
    auth: DelegatedAuth,
    node: String,
}

impl KubeletAuth {
    /// Creates the authorizer of this node's API.
    pub fn new(client: kube::Client, node: &str) -> Self {
        Self { auth: DelegatedAuth::new(client, AUTH_CONFIG), node: node.to_owned() }
    }

    /// Authorizes a request. `certificate_user` is the user of the client certificate. Removes the bearer token from the headers.
    pub async fn authorize_request(
        &self,
        certificate_user: Option<&UserInfo>,
        method: &Method,
        path: &str,
        headers: &mut HeaderMap,
    ) -> Result<(), AuthError> {
        let user = self.auth.authenticate(certificate_user, headers).await;
        let user = user.ok().flatten().ok_or(AuthError::Unauthorized)?;
        let (verb, subresources) = (attributes::request_verb(method), attributes::node_subresources(path));
        for &subresource in &subresources {
            let access = AccessAttributes::Node { verb, node: self.node.clone(), subresource };
            let allowed = self.auth.authorize(&user, &access).await.map_err(|_| {
                let name = &user.name;
                AuthError::Failed(format!(
                    "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                ))
            })?;
            if allowed {
                return Ok(());
            }
        }
        Err(AuthError::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        )))
    }
}

#[cfg(test)]
mod tests;
