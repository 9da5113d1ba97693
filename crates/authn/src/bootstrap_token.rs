//! Bootstrap tokens (`abcdef.0123456789abcdef`): secrets in `kube-system`, with which nodes join.

use std::{collections::BTreeSet, sync::Arc};

use api::{Value, meta};
use apiserver_core::{
    User, loopback,
    loopback::{LoopbackClient, ObjectKey},
    storage::ObjectStorage,
};
use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    AuthenticationErrors, AuthenticationResponse, AuthenticationResult, TokenAuthenticator, password_file::same,
};

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// Knows the tokens of secrets.
pub struct BootstrapTokens {
    registry: Arc<dyn ObjectStorage>,
}

impl BootstrapTokens {
    /// The secrets of this registry.
    pub fn new(registry: Arc<dyn ObjectStorage>) -> Self {
        Self { registry }
    }
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokens {
    async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
        let Some((id, secret)) = parts(token) else { return Ok(None) };
        let name = format!("bootstrap-token-{id}");
        let failed = |status: api::status::Status| AuthenticationErrors::one(status.message);
        let place = ObjectKey {
            resource: loopback::find_resource("", "v1", "secrets").map_err(failed)?,
            namespace: NAMESPACE,
            name: &name,
        };
        let Some(object) = LoopbackClient::new(&*self.registry).read_object(place).await.map_err(failed)? else {
            return Ok(None);
        };
        match user(&object, id, secret) {
            Ok(user) => Ok(Some(AuthenticationResponse::user(user))),
            // Whoever manages tokens finds it in the log; whoever shows one learns nothing.
            Err(why) => {
                tracing::info!(secret = name, "bootstrap token: {why}");
                Ok(None)
            }
        }
    }
}

/// The id and the secret of a token; `None` if it is no bootstrap token.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// Whom the secret's token is of, or why it is not accepted.
fn user(object: &Value, id: &str, secret: &str) -> Result<User, String> {
    let data = |key: &str| {
        let decoded = BASE64_STANDARD.decode(meta::string_at(object, &["data", key])).unwrap_or_default();
        String::from_utf8_lossy(&decoded).into_owned()
    };
    if meta::is_deleting(object) {
        return Err("is deleted and awaiting removal".into());
    }
    if meta::string_at(object, &["type"]) != TYPE || meta::value_at(object, &["data"]).is_none() {
        return Err(format!("has invalid type, expected {TYPE}."));
    }
    if !same(data("token-secret").as_bytes(), secret.as_bytes()) {
        return Err("has invalid value for key token-secret.".into());
    }
    if data("token-id") != id {
        return Err("has invalid value for key token-id.".into());
    }
    if has_expired(&data("expiration")) {
        return Err("has expired.".into());
    }
    if data("usage-bootstrap-authentication") != "true" {
        return Err("not marked usage-bootstrap-authentication=true.".into());
    }
    let groups = groups(&data("auth-extra-groups"))?;
    Ok(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

/// Whether a time is past; what is no time is.
fn has_expired(expiration: &str) -> bool {
    let ends = expiration.parse::<jiff::Timestamp>();
    !expiration.is_empty() && ends.map_or(true, |ends| ends <= apiserver_core::clock::now())
}

/// The group of all bootstrap tokens and those that the secret adds, sorted.
fn groups(more: &str) -> Result<Vec<String>, String> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in more.split(',').filter(|_| !more.is_empty()) {
        if !is_group(group) {
            let why = format!(
                "bootstrap group {group:?} is invalid (must match \\Asystem:bootstrappers:[a-z0-9:-]{{0,255}}[a-z0-9]\\z)"
            );
            return Err(format!("has invalid value for key auth-extra-groups: {why}."));
        }
        groups.insert(group.to_owned());
    }
    Ok(groups.into_iter().collect())
}

fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    (1..=256).contains(&rest.len())
        && rest.bytes().all(|byte| plain(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(plain)
}
