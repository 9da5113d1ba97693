//! Bootstrap tokens (`abcdef.0123456789abcdef`): Secrets in `kube-system` with which nodes join.

use std::{collections::BTreeSet, sync::Arc};

use api::{Value, meta};
use apiserver_core::{
    User,
    loopback::{self, LoopbackClient, ObjectKey},
    storage::ObjectStorage,
};
use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    AuthenticationErrors, AuthenticationResponse, AuthenticationResult, TokenAuthenticator,
    password_file::constant_time_eq,
};

const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const BOOTSTRAP_GROUP: &str = "system:bootstrappers";

/// Authenticates bootstrap tokens.
pub struct BootstrapTokenAuthenticator {
    registry: Arc<dyn ObjectStorage>,
}

impl BootstrapTokenAuthenticator {
    /// Reads Secrets from `registry`.
    pub fn new(registry: Arc<dyn ObjectStorage>) -> Self {
        Self { registry }
    }
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokenAuthenticator {
    async fn authenticate_token(&self, token: &str, _: &[String]) -> AuthenticationResult {
        let Some((id, secret)) = split_token(token) else { return Ok(None) };
        let name = format!("bootstrap-token-{id}");
        let failed = |status: api::status::Status| AuthenticationErrors::single(status.message);
        let key = ObjectKey {
            resource: loopback::find_resource("", "v1", "secrets").map_err(failed)?,
            namespace: NAMESPACE,
            name: &name,
        };
        let Some(object) = LoopbackClient::new(&*self.registry).read_object(key).await.map_err(failed)? else {
            return Ok(None);
        };
        match user_from_secret(&object, id, secret) {
            Ok(user) => Ok(Some(AuthenticationResponse::for_user(user))),
            // The reason is logged for administrators; the client does not learn it.
            Err(error) => {
                tracing::info!(secret = name, %error, "bootstrap token: rejected");
                Ok(None)
            }
        }
    }
}

/// Returns the ID and secret of a token; `None` if it is not a bootstrap token.
fn split_token(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    (id.len() == 6 && secret.len() == 16 && is_plain(id) && is_plain(secret)).then_some((id, secret))
}

/// Returns the user of the token, or the reason why it is rejected.
fn user_from_secret(object: &Value, id: &str, secret: &str) -> Result<User, AuthenticationErrors> {
    let data = |key: &str| {
        let decoded = BASE64_STANDARD.decode(meta::string_at(object, &["data", key])).unwrap_or_default();
        String::from_utf8_lossy(&decoded).into_owned()
    };
    if meta::is_deleting(object) {
        return Err("is deleted and awaiting removal".into());
    }
    if meta::string_at(object, &["type"]) != SECRET_TYPE || meta::value_at(object, &["data"]).is_none() {
        return Err(format!("has invalid type, expected {SECRET_TYPE}.").into());
    }
    if !constant_time_eq(data("token-secret").as_bytes(), secret.as_bytes()) {
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
    let groups = bootstrap_groups(&data("auth-extra-groups"))?;
    Ok(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

/// Whether the expiration has passed; a malformed time counts as passed.
fn has_expired(expiration: &str) -> bool {
    let expiry = expiration.parse::<jiff::Timestamp>();
    !expiration.is_empty() && expiry.map_or(true, |expiry| expiry <= apiserver_core::clock::now())
}

/// Returns `system:bootstrappers` and the extra groups of the Secret, sorted.
fn bootstrap_groups(extra_groups: &str) -> Result<Vec<String>, AuthenticationErrors> {
    let mut groups = BTreeSet::from([BOOTSTRAP_GROUP.to_owned()]);
    for group in extra_groups.split(',').filter(|_| !extra_groups.is_empty()) {
        if !is_bootstrap_group(group) {
            let reason = format!(
                "bootstrap group {group:?} is invalid (must match \\Asystem:bootstrappers:[a-z0-9:-]{{0,255}}[a-z0-9]\\z)"
            );
            return Err(format!("has invalid value for key auth-extra-groups: {reason}.").into());
        }
        groups.insert(group.to_owned());
    }
    Ok(groups.into_iter().collect())
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    (1..=256).contains(&rest.len())
        && rest.bytes().all(|byte| is_plain(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(is_plain)
}
