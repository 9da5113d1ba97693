//! Tokens that secrets hold: they never expire, and end with their secret. When one was last used is noted on its secret.

use api::{Value, meta};
use apiserver_core::{
    clock, loopback,
    loopback::{LoopbackClient, ObjectKey},
};
use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{ToSpan, tz::TimeZone};

use super::{Account, Accounts, Signed, split};
use crate::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator, password_file::same};

const ISSUER: &str = "kubernetes/serviceaccount";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const AUTO_GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
                              auto-generated secret-based tokens.";

/// Knows such tokens.
pub struct Legacy {
    accounts: Accounts,
    /// Whether secret and account must exist.
    lookup: bool,
}

/// What a token says of itself.
struct Named {
    namespace: String,
    secret: String,
    name: String,
    uid: String,
}

impl Legacy {
    /// Of these accounts.
    pub fn new(accounts: Accounts, lookup: bool) -> Self {
        Self { accounts, lookup }
    }
}

#[async_trait]
impl TokenAuthenticator for Legacy {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let signed = self.accounts.signed(token, &[ISSUER.to_owned()], audiences)?;
        let Some(mut signed) = signed else { return Ok(None) };
        let named = Named::of(&signed)?;
        if self.lookup {
            self.exists(token, &named, &mut signed).await?;
        }
        let account = Account { namespace: &named.namespace, name: &named.name, uid: &named.uid, ..Account::default() };
        Ok(Some(account.found(signed)))
    }
}

impl Named {
    fn of(signed: &Signed<'_>) -> Result<Self, AuthenticationErrors> {
        let claim = |name: &str, what: &str| match signed.jwt.text(name) {
            "" => Err(AuthenticationErrors::one(format!("{what} claim is missing"))),
            text => Ok(text.to_owned()),
        };
        let subject = claim("sub", "sub")?;
        let named = Self {
            namespace: claim("kubernetes.io/serviceaccount/namespace", "namespace")?,
            secret: claim("kubernetes.io/serviceaccount/secret.name", "secretName")?,
            name: claim("kubernetes.io/serviceaccount/service-account.name", "serviceAccountName")?,
            uid: claim("kubernetes.io/serviceaccount/service-account.uid", "serviceAccountUID")?,
        };
        if split(&subject) != Some((&named.namespace, &named.name)) {
            return Err(AuthenticationErrors::one("sub claim is invalid"));
        }
        Ok(named)
    }
}

impl Legacy {
    /// Whether the secret still holds this token, and its account still exists.
    async fn exists(&self, token: &str, named: &Named, signed: &mut Signed<'_>) -> Result<(), AuthenticationErrors> {
        let Named { namespace, secret: secret_name, name, uid } = named;
        let secret = self.accounts.object("secrets", namespace, secret_name).await;
        let secret = secret.ok().filter(|secret| !meta::is_deleting(secret));
        let secret = secret.ok_or_else(|| AuthenticationErrors::one("Token has been invalidated"))?;
        let held = BASE64_STANDARD.decode(meta::string_at(&secret, &["data", "token"])).unwrap_or_default();
        if !same(&held, token.as_bytes()) {
            return Err(AuthenticationErrors::one("Token does not match server's copy"));
        }
        let account = self.accounts.object("serviceaccounts", namespace, name).await;
        let account = account.map_err(|status| AuthenticationErrors::one(status.message))?;
        if meta::is_deleting(&account) {
            return Err(AuthenticationErrors::one(format!("ServiceAccount {namespace}/{name} has been deleted")));
        }
        let actual = meta::uid(&account);
        if actual != uid {
            return Err(AuthenticationErrors::one(format!(
                "ServiceAccount UID ({actual}) does not match claim ({uid})"
            )));
        }
        let invalid = !meta::string_at(&secret, &["metadata", "labels", INVALID_SINCE]).is_empty();
        self.note_use(&secret).await;
        if invalid {
            return Err(AuthenticationErrors::one(format!(
                "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked \
                 invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )));
        }
        let generated = meta::list_at(&account, &["secrets"])
            .iter()
            .any(|secret| meta::string_at(secret, &["name"]) == secret_name);
        if generated {
            signed.notes.warnings.push(AUTO_GENERATED.to_owned());
        }
        let kind = if generated {
            "authentication.k8s.io/legacy-token-autogenerated-secret"
        } else {
            "authentication.k8s.io/legacy-token-manual-secret"
        };
        signed.notes.annotations.push((kind, secret_name.clone()));
        Ok(())
    }

    /// Writes today's date on the secret, unless it is there.
    async fn note_use(&self, secret: &Value) {
        let today = clock::now().to_zoned(TimeZone::UTC).date();
        let tomorrow = today.saturating_add(1.day());
        let noted = meta::string_at(secret, &["metadata", "labels", LAST_USED]);
        if noted == today.to_string() || noted == tomorrow.to_string() {
            return;
        }
        let mut changed = secret.clone();
        let labels =
            meta::metadata_mut(&mut changed).entry("labels").or_insert_with(|| Value::Object(Default::default()));
        meta::object_mut(labels).insert(LAST_USED.into(), today.to_string().into());
        let Ok(resource) = loopback::find_resource("", "v1", "secrets") else { return };
        let place = ObjectKey { resource, namespace: meta::namespace(secret), name: meta::name(secret) };
        if let Err(status) = LoopbackClient::new(&*self.accounts.registry).update_object(place, &changed).await {
            tracing::warn!(error = status.message, "cannot note when an old token was last used");
        }
    }
}
