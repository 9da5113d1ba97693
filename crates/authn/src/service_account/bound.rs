//! Tokens that expire, and that end with the account, pod, secret or node that they were made for.

use api::{Value, meta};
use apiserver_core::clock;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::{Account, Accounts, Signed};
use crate::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator};

/// By how much clocks may differ, and how long a token outlives the deletion of its objects.
const LEEWAY: i64 = 60;
const GONE: &str = "service account token has been invalidated";

/// Knows such tokens.
pub struct Bound {
    accounts: Accounts,
}

impl Bound {
    /// Of these accounts.
    pub fn new(accounts: Accounts) -> Self {
        Self { accounts }
    }
}

#[async_trait]
impl TokenAuthenticator for Bound {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let issuers = self.accounts.tokens.issuers();
        let Some(mut signed) = self.accounts.signed(token, issuers, audiences)? else { return Ok(None) };
        let now = clock::now();
        is_current(&signed, now)?;
        let claims = signed.jwt.claims.get("kubernetes.io").cloned().unwrap_or_default();
        let account = self.lives(&claims, now).await?;
        note_age(&mut signed, &claims, now);
        let id = signed.jwt.text("jti").to_owned();
        Ok(Some(Account { id: &id, ..account }.found(signed)))
    }
}

impl Bound {
    /// Whether everything that the token names still exists.
    async fn lives<'a>(&self, claims: &'a Value, now: Timestamp) -> Result<Account<'a>, AuthenticationErrors> {
        let namespace = meta::string_at(claims, &["namespace"]);
        let (name, uid) = reference(claims, "serviceaccount").unwrap_or_default();
        let found = self.accounts.object("serviceaccounts", namespace, name).await;
        let found = found.map_err(|status| AuthenticationErrors::one(status.message))?;
        if meta::uid(&found) != uid {
            let actual = meta::uid(&found);
            return Err(AuthenticationErrors::one(format!(
                "service account UID ({actual}) does not match claim ({uid})"
            )));
        }
        if was_deleted(&found, now) {
            return Err(AuthenticationErrors::one(format!("service account {namespace}/{name} has been deleted")));
        }
        let (pod, node) = (reference(claims, "pod"), reference(claims, "node"));
        if let Some(secret) = reference(claims, "secret") {
            self.bound("secret", namespace, secret, now).await?;
        }
        if let Some(pod) = pod {
            self.bound("pod", namespace, pod, now).await?;
        }
        if let (None, Some(node)) = (pod, node) {
            self.bound("node", "", node, now).await?;
        }
        Ok(Account { namespace, name, uid, pod, node, id: "" })
    }

    /// Whether an object that the token is bound to is still the same.
    async fn bound(
        &self,
        kind: &str,
        namespace: &str,
        named: (&str, &str),
        now: Timestamp,
    ) -> Result<(), AuthenticationErrors> {
        let (name, uid) = named;
        let found = self.accounts.object(&format!("{kind}s"), namespace, name).await;
        let found = found.map_err(|_| AuthenticationErrors::one(GONE))?;
        let actual = meta::uid(&found);
        if actual != uid {
            return Err(AuthenticationErrors::one(format!(
                "{kind} UID ({actual}) does not match service account {kind} ref claim ({uid})"
            )));
        }
        if was_deleted(&found, now) { Err(AuthenticationErrors::one(GONE)) } else { Ok(()) }
    }
}

/// The name and uid of an object that the claims refer to.
fn reference<'a>(claims: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    claims.get(kind)?;
    Some((meta::string_at(claims, &[kind, "name"]), meta::string_at(claims, &[kind, "uid"])))
}

fn was_deleted(object: &Value, now: Timestamp) -> bool {
    let since = meta::string_at(object, &["metadata", "deletionTimestamp"]).parse::<Timestamp>();
    since.is_ok_and(|since| since < now - SignedDuration::from_secs(LEEWAY))
}

fn is_current(signed: &Signed<'_>, now: Timestamp) -> Result<(), AuthenticationErrors> {
    let (now, leeway) = (now.as_millisecond() as f64 / 1000.0, LEEWAY as f64);
    let at = |claim: &str| signed.jwt.seconds(claim);
    if at("nbf").is_some_and(|since| now + leeway < since) {
        return Err(AuthenticationErrors::one("service account token is not valid yet"));
    }
    if at("exp").is_some_and(|until| now - leeway > until) {
        return Err(AuthenticationErrors::one("service account token has expired"));
    }
    if at("iat").is_some_and(|issued| now + leeway < issued) {
        return Err(AuthenticationErrors::one("service account token is issued in the future"));
    }
    Ok(())
}

/// Whoever uses a token longer than it was asked for should read it again.
fn note_age(signed: &mut Signed<'_>, claims: &Value, now: Timestamp) {
    let Some(after) = claims.get("warnafter").and_then(Value::as_f64).map(|after| after as i64) else { return };
    let late = now.as_second() - after;
    if after != 0 && late > 0 {
        let subject = signed.jwt.text("sub");
        let text = format!("subject: {subject}, seconds after warning threshold: {late}");
        signed.notes.annotations.push(("authentication.k8s.io/stale-token", text));
    }
}
