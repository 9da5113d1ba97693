//! Tokens that somebody else knows: a webhook is sent a `TokenReview` and answers it.

use std::{fmt, sync::Arc, time::Duration};

use api::{Value, meta};
use apiserver_core::{
    User, http_client,
    http_client::{RetryBackoff, Endpoint, with_backoff},
};
use async_trait::async_trait;
use serde_json::json;

use super::{AuthenticationErrors, AuthenticationResponse, AuthenticationResult, TokenAuthenticator, cache::Lifetimes};

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The pause before a call is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// A webhook that knows tokens.
#[derive(Clone)]
pub struct TokenWebhook {
    /// Where it is.
    pub endpoint: Arc<Endpoint>,
    /// The version of `TokenReview` that it understands.
    pub version: ReviewVersion,
    /// How long its answers count.
    pub ttl: Duration,
}

/// A version of `TokenReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authentication.k8s.io/v1`.
    V1,
    /// `authentication.k8s.io/v1beta1`.
    V1Beta1,
}

impl TokenWebhook {
    /// How long its answers are remembered: errors are not.
    pub(super) fn lifetimes(&self) -> Lifetimes {
        Lifetimes { good: self.ttl, unknown: self.ttl, errors: false }
    }
}

impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenWebhook({:?} {:?} {:?})", self.endpoint, self.version, self.ttl)
    }
}

/// Asks a webhook.
pub struct Webhook {
    webhook: TokenWebhook,
    /// Those of this API server.
    audiences: Vec<String>,
}

impl Webhook {
    /// Asks this one.
    pub fn new(webhook: TokenWebhook, audiences: &[String]) -> Self {
        Self { webhook, audiences: audiences.to_vec() }
    }

    async fn review(&self, token: &str, audiences: &[String]) -> Result<Value, http_client::HttpClientError> {
        let version = match self.webhook.version {
            ReviewVersion::V1 => "authentication.k8s.io/v1",
            ReviewVersion::V1Beta1 => "authentication.k8s.io/v1beta1",
        };
        let mut review = json!({
            "apiVersion": version, "kind": "TokenReview", "metadata": {}, "spec": {"token": token}, "status": {"user": {}},
        });
        if !audiences.is_empty() {
            review["spec"]["audiences"] = json!(audiences);
        }
        let body = bytes::Bytes::from(review.to_string());
        let endpoint = &self.webhook.endpoint;
        let answer = with_backoff(RetryBackoff::with_initial_delay(PAUSE), || endpoint.post(body.clone(), LIMIT)).await?.into_success_body()?;
        let review: Value =
            serde_json::from_slice(&answer).map_err(|error| http_client::HttpClientError::MalformedBody(error.to_string()))?;
        if meta::string_at(&review, &["kind"]) != "TokenReview" {
            return Err(http_client::HttpClientError::MalformedBody("it is no TokenReview".into()));
        }
        Ok(review)
    }
}

#[async_trait]
impl TokenAuthenticator for Webhook {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let review = self.review(token, audiences).await.map_err(|error| {
            tracing::warn!(%error, "failed to make webhook authenticator request");
            AuthenticationErrors::one(error.to_string())
        })?;
        let texts = |path: &[&str]| -> Vec<String> {
            meta::list_at(&review, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut granted = Vec::new();
        if !audiences.is_empty() {
            let told = texts(&["status", "audiences"]);
            let told = if told.is_empty() { &self.audiences } else { &told };
            granted = audiences.iter().filter(|one| told.contains(one)).cloned().collect();
            if granted.is_empty() {
                return Ok(None);
            }
        }
        if meta::value_at(&review, &["status", "authenticated"]) != Some(&Value::Bool(true)) {
            return match meta::string_at(&review, &["status", "error"]) {
                "" => Ok(None),
                error => Err(AuthenticationErrors::one(error)),
            };
        }
        let user = ["status", "user"];
        let extra = meta::value_at(&review, &["status", "user", "extra"]).cloned().unwrap_or_default();
        Ok(Some(AuthenticationResponse {
            user: User {
                name: meta::string_at(&review, &[user[0], user[1], "username"]).to_owned(),
                uid: meta::string_at(&review, &[user[0], user[1], "uid"]).to_owned(),
                groups: texts(&[user[0], user[1], "groups"]),
                extra: serde_json::from_value(extra).unwrap_or_default(),
            },
            audiences: granted,
            ..AuthenticationResponse::default()
        }))
    }
}
