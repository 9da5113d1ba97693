//! Service account tokens: bound tokens of TokenRequest, and legacy tokens in Secrets. A token is valid while the
//! objects that it names exist with the same UID.

mod bound;
mod legacy;

use std::{collections::BTreeMap, sync::Arc};

use api::{Value, status::Status};
use apiserver_core::{
    User,
    loopback::{self, LoopbackClient, ObjectKey},
    storage::ObjectStorage,
};
pub use bound::BoundTokenAuthenticator;
pub use legacy::LegacyTokenAuthenticator;

use super::{AuthenticationErrors, AuthenticationNotes, AuthenticationResponse, CREDENTIAL_ID, format_quoted};
use crate::tokens::{BAD_SIGNATURE, Jwt, TokenIssuer};

/// The keys, and the objects that tokens name.
pub struct ServiceAccountStore {
    tokens: Arc<TokenIssuer>,
    registry: Arc<dyn ObjectStorage>,
    /// Audiences of this API server.
    audiences: Vec<String>,
}

/// A token with a valid signature, issuer and audience.
struct VerifiedToken<'a> {
    jwt: Jwt<'a>,
    audiences: Vec<String>,
    notes: AuthenticationNotes,
}

impl ServiceAccountStore {
    /// Service accounts of `registry`, for this API server's audiences.
    pub fn new(tokens: Arc<TokenIssuer>, registry: Arc<dyn ObjectStorage>, audiences: Vec<String>) -> Self {
        Self { tokens, registry, audiences }
    }

    /// Verifies signature, issuer and audience; `None` if the token is of another issuer.
    fn verify_token<'a>(
        &self,
        token: &'a str,
        issuers: &[String],
        accepted: &[String],
    ) -> Result<Option<VerifiedToken<'a>>, AuthenticationErrors> {
        let Some(jwt) = Jwt::parse(token) else { return Ok(None) };
        if !issuers.iter().any(|issuer| issuer == jwt.string_claim("iss")) {
            return Ok(None);
        }
        let keys = self.tokens.keys(&jwt.key_id);
        if keys.is_empty() {
            return Err(AuthenticationErrors::single("invalid signature, no keys found"));
        }
        if !jwt.verify_signature(keys) {
            return Err(AuthenticationErrors::single(BAD_SIGNATURE));
        }
        let mut notes = AuthenticationNotes::default();
        let mut token_audiences = jwt.audiences();
        if token_audiences.is_empty() {
            notes.annotations.push(("authentication.k8s.io/legacy-token", jwt.string_claim("sub").to_owned()));
            token_audiences = self.audiences.clone();
        }
        let accepted = if accepted.is_empty() { &self.audiences } else { accepted };
        let audiences: Vec<String> =
            token_audiences.iter().filter(|audience| accepted.contains(audience)).cloned().collect();
        if audiences.is_empty() && !self.audiences.is_empty() {
            return Err(AuthenticationErrors::single(format!(
                "token audiences {} is invalid for the target audiences {}",
                format_quoted(&token_audiences),
                format_quoted(accepted)
            )));
        }
        Ok(Some(VerifiedToken { jwt, audiences, notes }))
    }

    async fn read_object(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let resource = loopback::find_resource("", "v1", resource)?;
        let object = LoopbackClient::new(&*self.registry).read_object(ObjectKey { resource, namespace, name }).await?;
        object.ok_or_else(|| Status::not_found(resource, name))
    }
}

/// The identity of a service account token.
#[derive(Default)]
struct ServiceAccountInfo<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    pod: Option<(&'a str, &'a str)>,
    node: Option<(&'a str, &'a str)>,
    /// The `jti` claim of the token.
    id: &'a str,
}

impl ServiceAccountInfo<'_> {
    fn build_response(&self, token: VerifiedToken<'_>) -> AuthenticationResponse {
        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: String| drop(extra.insert(key.to_owned(), vec![value]));
        if let Some((name, uid)) = self.pod {
            add("authentication.kubernetes.io/pod-name", name.to_owned());
            add("authentication.kubernetes.io/pod-uid", uid.to_owned());
        }
        if !self.id.is_empty() {
            add(CREDENTIAL_ID, format!("JTI={}", self.id));
        }
        if let Some((name, uid)) = self.node {
            add("authentication.kubernetes.io/node-name", name.to_owned());
            if !uid.is_empty() {
                add("authentication.kubernetes.io/node-uid", uid.to_owned());
            }
        }
        let user = User {
            name: user_name(self.namespace, self.name),
            groups: groups(self.namespace),
            uid: self.uid.to_owned(),
            extra,
        };
        AuthenticationResponse { user, audiences: token.audiences, notes: token.notes }
    }
}

/// Returns the user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Returns the groups of a service account.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Parses the user name of a service account into namespace and name.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (is_dns_label(namespace) && !name.is_empty() && name.split('.').all(is_dns_label) && name.len() <= 253)
        .then_some((namespace, name))
}

/// Whether a text is a DNS-1123 label.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| inner(*byte))
        && bytes.last().is_some_and(|byte| inner(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_is_split_into_namespace_and_name() {
        for (user, want) in [
            ("system:serviceaccount:a:b", Some(("a", "b"))),
            ("system:serviceaccount:a:b.c", Some(("a", "b.c"))),
            ("system:serviceaccount:a:b:c", None),
            ("system:serviceaccount:A:b", None),
            ("system:serviceaccount::b", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount:a", None),
            ("robot", None),
        ] {
            assert_eq!(split_user_name(user), want, "{user}");
        }
    }
}
