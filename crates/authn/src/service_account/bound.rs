//! Bound tokens: they expire, and are invalidated with their ServiceAccount, Pod, Secret or Node.

use api::{Value, meta};
use apiserver_core::clock;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::{ServiceAccountInfo, ServiceAccountStore, VerifiedToken};
use crate::{AuthenticationErrors, AuthenticationResult, TokenAuthenticator};

/// Tolerated clock difference, and how long a token outlives the deletion of its objects, in seconds.
const LEEWAY_SECONDS: i64 = 60;
const INVALIDATED: &str = "service account token has been invalidated";

/// Authenticates bound tokens.
pub struct BoundTokenAuthenticator {
    accounts: ServiceAccountStore,
}

impl BoundTokenAuthenticator {
    /// Authenticates tokens of `accounts`.
    pub fn new(accounts: ServiceAccountStore) -> Self {
        Self { accounts }
    }
}

#[async_trait]
impl TokenAuthenticator for BoundTokenAuthenticator {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let issuers = self.accounts.tokens.issuers();
        let Some(mut verified) = self.accounts.verify_token(token, issuers, audiences)? else { return Ok(None) };
        let now = clock::now();
        check_validity(&verified, now)?;
        let claims = verified.jwt.claims.get("kubernetes.io").cloned().unwrap_or_default();
        let account = self.check_objects(&claims, now).await?;
        annotate_stale_token(&mut verified, &claims, now);
        let id = verified.jwt.string_claim("jti").to_owned();
        Ok(Some(ServiceAccountInfo { id: &id, ..account }.build_response(verified)))
    }
}

impl BoundTokenAuthenticator {
    /// Checks that all objects that the token names exist, and returns the service account.
    async fn check_objects<'a>(
        &self,
        claims: &'a Value,
        now: Timestamp,
    ) -> Result<ServiceAccountInfo<'a>, AuthenticationErrors> {
        let namespace = meta::string_at(claims, &["namespace"]);
        let (name, uid) = object_reference(claims, "serviceaccount").unwrap_or_default();
        let account = self.accounts.read_object("serviceaccounts", namespace, name).await;
        let account = account.map_err(|status| AuthenticationErrors::single(status.message))?;
        if meta::uid(&account) != uid {
            let actual = meta::uid(&account);
            return Err(AuthenticationErrors::single(format!(
                "service account UID ({actual}) does not match claim ({uid})"
            )));
        }
        if was_deleted(&account, now) {
            return Err(AuthenticationErrors::single(format!("service account {namespace}/{name} has been deleted")));
        }
        let (pod, node) = (object_reference(claims, "pod"), object_reference(claims, "node"));
        if let Some(secret) = object_reference(claims, "secret") {
            self.check_bound_object("secret", namespace, secret, now).await?;
        }
        if let Some(pod) = pod {
            self.check_bound_object("pod", namespace, pod, now).await?;
        }
        if let (None, Some(node)) = (pod, node) {
            self.check_bound_object("node", "", node, now).await?;
        }
        Ok(ServiceAccountInfo { namespace, name, uid, pod, node, id: "" })
    }

    /// Checks that an object that the token is bound to still exists with the same UID.
    async fn check_bound_object(
        &self,
        kind: &str,
        namespace: &str,
        reference: (&str, &str),
        now: Timestamp,
    ) -> Result<(), AuthenticationErrors> {
        let (name, uid) = reference;
        let object = self.accounts.read_object(&format!("{kind}s"), namespace, name).await;
        let object = object.map_err(|_| AuthenticationErrors::single(INVALIDATED))?;
        let actual = meta::uid(&object);
        if actual != uid {
            return Err(AuthenticationErrors::single(format!(
                "{kind} UID ({actual}) does not match service account {kind} ref claim ({uid})"
            )));
        }
        if was_deleted(&object, now) { Err(AuthenticationErrors::single(INVALIDATED)) } else { Ok(()) }
    }
}

/// Returns the name and UID of an object in the claims.
fn object_reference<'a>(claims: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    claims.get(kind)?;
    Some((meta::string_at(claims, &[kind, "name"]), meta::string_at(claims, &[kind, "uid"])))
}

fn was_deleted(object: &Value, now: Timestamp) -> bool {
    let deleted_at = meta::string_at(object, &["metadata", "deletionTimestamp"]).parse::<Timestamp>();
    deleted_at.is_ok_and(|deleted_at| deleted_at < now - SignedDuration::from_secs(LEEWAY_SECONDS))
}

fn check_validity(token: &VerifiedToken<'_>, now: Timestamp) -> Result<(), AuthenticationErrors> {
    let (now, leeway) = (now.as_millisecond() as f64 / 1000.0, LEEWAY_SECONDS as f64);
    let at = |claim: &str| token.jwt.time_claim(claim);
    if at("nbf").is_some_and(|since| now + leeway < since) {
        return Err(AuthenticationErrors::single("service account token is not valid yet"));
    }
    if at("exp").is_some_and(|until| now - leeway > until) {
        return Err(AuthenticationErrors::single("service account token has expired"));
    }
    if at("iat").is_some_and(|issued| now + leeway < issued) {
        return Err(AuthenticationErrors::single("service account token is issued in the future"));
    }
    Ok(())
}

/// Annotates requests with a token past its requested lifetime.
fn annotate_stale_token(token: &mut VerifiedToken<'_>, claims: &Value, now: Timestamp) {
    let Some(after) = claims.get("warnafter").and_then(Value::as_f64).map(|after| after as i64) else { return };
    let late = now.as_second() - after;
    if after != 0 && late > 0 {
        let subject = token.jwt.string_claim("sub");
        let text = format!("subject: {subject}, seconds after warning threshold: {late}");
        token.notes.annotations.push(("authentication.k8s.io/stale-token", text));
    }
}
