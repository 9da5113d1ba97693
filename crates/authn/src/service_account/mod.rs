//! Tokens of service accounts: those bound to objects, which `TokenRequest` gives out, and the old ones that secrets hold.
//! A token counts as long as what it names exists under the same uid.

mod bound;
mod legacy;

use std::{collections::BTreeMap, sync::Arc};

use api::{Value, status::Status};
use apiserver_core::{
    User, loopback,
    loopback::{LoopbackClient, ObjectKey},
    storage::ObjectStorage,
};
pub use bound::Bound;
pub use legacy::Legacy;

use super::{AuthenticationErrors, AuthenticationNotes, AuthenticationResponse, CREDENTIAL};
use crate::tokens::{BAD_SIGNATURE, Jwt, Tokens};

/// What both kinds need: the keys, and the objects that tokens name.
pub struct Accounts {
    tokens: Arc<Tokens>,
    registry: Arc<dyn ObjectStorage>,
    /// Those of this API server.
    audiences: Vec<String>,
}

/// A token whose signature, issuer and audiences are right.
struct Signed<'a> {
    jwt: Jwt<'a>,
    audiences: Vec<String>,
    notes: AuthenticationNotes,
}

impl Accounts {
    /// Tokens of this registry's accounts, for this API server's audiences.
    pub fn new(tokens: Arc<Tokens>, registry: Arc<dyn ObjectStorage>, audiences: Vec<String>) -> Self {
        Self { tokens, registry, audiences }
    }

    /// Verifies what does not depend on objects; `None` if it is no token of these issuers.
    fn signed<'a>(
        &self,
        token: &'a str,
        issuers: &[String],
        wanted: &[String],
    ) -> Result<Option<Signed<'a>>, AuthenticationErrors> {
        let Some(jwt) = Jwt::parse(token) else { return Ok(None) };
        if !issuers.iter().any(|issuer| issuer == jwt.text("iss")) {
            return Ok(None);
        }
        let keys = self.tokens.keys(&jwt.key_id);
        if keys.is_empty() {
            return Err(AuthenticationErrors::one("invalid signature, no keys found"));
        }
        if !jwt.verify(keys) {
            return Err(AuthenticationErrors::one(BAD_SIGNATURE));
        }
        let mut notes = AuthenticationNotes::default();
        let mut of_token = jwt.audiences();
        if of_token.is_empty() {
            notes.annotations.push(("authentication.k8s.io/legacy-token", jwt.text("sub").to_owned()));
            of_token = self.audiences.clone();
        }
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        let audiences: Vec<String> = of_token.iter().filter(|one| wanted.contains(one)).cloned().collect();
        if audiences.is_empty() && !self.audiences.is_empty() {
            return Err(AuthenticationErrors::one(format!(
                "token audiences {} is invalid for the target audiences {}",
                listed(&of_token),
                listed(wanted)
            )));
        }
        Ok(Some(Signed { jwt, audiences, notes }))
    }

    async fn object(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let resource = loopback::find_resource("", "v1", resource)?;
        let found = LoopbackClient::new(&*self.registry).read_object(ObjectKey { resource, namespace, name }).await?;
        found.ok_or_else(|| Status::not_found(resource, name))
    }
}

/// A list of texts as Go's `%q` writes it.
fn listed(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// An account as a user.
#[derive(Default)]
struct Account<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    pod: Option<(&'a str, &'a str)>,
    node: Option<(&'a str, &'a str)>,
    /// The token's own identity.
    id: &'a str,
}

impl Account<'_> {
    fn found(&self, signed: Signed<'_>) -> AuthenticationResponse {
        let mut extra = BTreeMap::new();
        let mut put = |key: &str, value: String| drop(extra.insert(key.to_owned(), vec![value]));
        if let Some((name, uid)) = self.pod {
            put("authentication.kubernetes.io/pod-name", name.to_owned());
            put("authentication.kubernetes.io/pod-uid", uid.to_owned());
        }
        if !self.id.is_empty() {
            put(CREDENTIAL, format!("JTI={}", self.id));
        }
        if let Some((name, uid)) = self.node {
            put("authentication.kubernetes.io/node-name", name.to_owned());
            if !uid.is_empty() {
                put("authentication.kubernetes.io/node-uid", uid.to_owned());
            }
        }
        let user = User {
            name: user_name(self.namespace, self.name),
            groups: groups(self.namespace),
            uid: self.uid.to_owned(),
            extra,
        };
        AuthenticationResponse { user, audiences: signed.audiences, notes: signed.notes }
    }
}

/// What an account is called as a user.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups that an account of a namespace is in.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The namespace and name of an account that is called so as a user.
pub fn split(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (is_label(namespace) && !name.is_empty() && name.split('.').all(is_label) && name.len() <= 253)
        .then_some((namespace, name))
}

/// Whether a text is a DNS label.
pub fn is_label(text: &str) -> bool {
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
    fn accounts_have_names_as_users() {
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
            assert_eq!(split(user), want, "{user}");
        }
    }
}
