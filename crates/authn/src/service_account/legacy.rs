//! Legacy tokens in Secrets: they do not expire, and end with their Secret. The last use is recorded in a label of the
//! Secret.

use api::{Value, meta};
use apiserver_core::{
    clock,
    loopback::{self, LoopbackClient, ObjectKey},
};
use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{ToSpan, tz::TimeZone};

use super::{ServiceAccountInfo, ServiceAccountStore, VerifiedToken, split_user_name};
use crate::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator, password_file::constant_time_eq};

const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const AUTO_GENERATED_WARNING: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
                              auto-generated secret-based tokens.";

/// Authenticates legacy tokens.
pub struct LegacyTokenAuthenticator {
    accounts: ServiceAccountStore,
    /// Whether the Secret and ServiceAccount must exist.
    lookup: bool,
}

/// The claims of a legacy token.
struct LegacyClaims {
    namespace: String,
    secret: String,
    name: String,
    uid: String,
}

impl LegacyTokenAuthenticator {
    /// Authenticates tokens of `accounts`.
    pub fn new(accounts: ServiceAccountStore, lookup: bool) -> Self {
        Self { accounts, lookup }
    }
}

#[async_trait]
impl TokenAuthenticator for LegacyTokenAuthenticator {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let verified = self.accounts.verify_token(token, &[LEGACY_ISSUER.to_owned()], audiences)?;
        let Some(mut verified) = verified else { return Ok(None) };
        let claims = LegacyClaims::from_token(&verified)?;
        if self.lookup {
            self.check_secret(token, &claims, &mut verified).await?;
        }
        let account = ServiceAccountInfo {
            namespace: &claims.namespace,
            name: &claims.name,
            uid: &claims.uid,
            ..ServiceAccountInfo::default()
        };
        Ok(Some(account.build_response(verified)))
    }
}

impl LegacyClaims {
    fn from_token(token: &VerifiedToken<'_>) -> Result<Self, AuthenticationErrors> {
        let claim = |name: &str, label: &str| match token.jwt.string_claim(name) {
            "" => Err(AuthenticationErrors::single(format!("{label} claim is missing"))),
            text => Ok(text.to_owned()),
        };
        let subject = claim("sub", "sub")?;
        let claims = Self {
            namespace: claim("kubernetes.io/serviceaccount/namespace", "namespace")?,
            secret: claim("kubernetes.io/serviceaccount/secret.name", "secretName")?,
            name: claim("kubernetes.io/serviceaccount/service-account.name", "serviceAccountName")?,
            uid: claim("kubernetes.io/serviceaccount/service-account.uid", "serviceAccountUID")?,
        };
        if split_user_name(&subject) != Some((&claims.namespace, &claims.name)) {
            return Err(AuthenticationErrors::single("sub claim is invalid"));
        }
        Ok(claims)
    }
}

impl LegacyTokenAuthenticator {
    /// Checks that the Secret still holds this token and the ServiceAccount exists.
    async fn check_secret(
        &self,
        token: &str,
        claims: &LegacyClaims,
        verified: &mut VerifiedToken<'_>,
    ) -> Result<(), AuthenticationErrors> {
        let LegacyClaims { namespace, secret: secret_name, name, uid } = claims;
        let secret = self.accounts.read_object("secrets", namespace, secret_name).await;
        let secret = secret.ok().filter(|secret| !meta::is_deleting(secret));
        let secret = secret.ok_or_else(|| AuthenticationErrors::single("Token has been invalidated"))?;
        let stored = BASE64_STANDARD.decode(meta::string_at(&secret, &["data", "token"])).unwrap_or_default();
        if !constant_time_eq(&stored, token.as_bytes()) {
            return Err(AuthenticationErrors::single("Token does not match server's copy"));
        }
        let account = self.accounts.read_object("serviceaccounts", namespace, name).await;
        let account = account.map_err(|status| AuthenticationErrors::single(status.message))?;
        if meta::is_deleting(&account) {
            return Err(AuthenticationErrors::single(format!("ServiceAccount {namespace}/{name} has been deleted")));
        }
        let actual = meta::uid(&account);
        if actual != uid {
            return Err(AuthenticationErrors::single(format!(
                "ServiceAccount UID ({actual}) does not match claim ({uid})"
            )));
        }
        let invalid = !meta::string_at(&secret, &["metadata", "labels", INVALID_SINCE]).is_empty();
        self.record_last_used(&secret).await;
        if invalid {
            return Err(AuthenticationErrors::single(format!(
                "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked \
                 invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )));
        }
        let generated = meta::list_at(&account, &["secrets"])
            .iter()
            .any(|secret| meta::string_at(secret, &["name"]) == secret_name);
        if generated {
            verified.notes.warnings.push(AUTO_GENERATED_WARNING.to_owned());
        }
        let kind = if generated {
            "authentication.k8s.io/legacy-token-autogenerated-secret"
        } else {
            "authentication.k8s.io/legacy-token-manual-secret"
        };
        verified.notes.annotations.push((kind, secret_name.clone()));
        Ok(())
    }

    /// Sets the label with the date of the last use, unless it is current.
    async fn record_last_used(&self, secret: &Value) {
        let today = clock::now().to_zoned(TimeZone::UTC).date();
        let tomorrow = today.saturating_add(1.day());
        let last_used = meta::string_at(secret, &["metadata", "labels", LAST_USED]);
        if last_used == today.to_string() || last_used == tomorrow.to_string() {
            return;
        }
        let mut updated = secret.clone();
        let labels =
            meta::metadata_mut(&mut updated).entry("labels").or_insert_with(|| Value::Object(Default::default()));
        meta::object_mut(labels).insert(LAST_USED.into(), today.to_string().into());
        let Ok(resource) = loopback::find_resource("", "v1", "secrets") else { return };
        let key = ObjectKey { resource, namespace: meta::namespace(secret), name: meta::name(secret) };
        if let Err(status) = LoopbackClient::new(&*self.accounts.registry).update_object(key, &updated).await {
            tracing::warn!(error = status.message, "legacy token: cannot record the last use");
        }
    }
}
