//! Token webhooks: tokens that a webhook authenticates with a TokenReview.

use std::{fmt, sync::Arc, time::Duration};

use api::{Value, meta};
use apiserver_core::{
    User,
    http_client::{Endpoint, HttpClientError, RetryBackoff, with_backoff},
};
use async_trait::async_trait;
use serde_json::json;

use super::{
    AuthenticationErrors, AuthenticationResponse, AuthenticationResult, TokenAuthenticator, cache::TokenCacheTtls,
};

/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the first retry.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The configuration of a token webhook.
#[derive(Clone)]
pub struct TokenWebhook {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// The version of TokenReview.
    pub review_version: ReviewVersion,
    /// TTL of its responses.
    pub ttl: Duration,
}

/// A version of TokenReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authentication.k8s.io/v1`.
    V1,
    /// `authentication.k8s.io/v1beta1`.
    V1Beta1,
}

impl TokenWebhook {
    /// TTLs of its responses; errors are not cached.
    pub(super) fn cache_ttls(&self) -> TokenCacheTtls {
        TokenCacheTtls { success: self.ttl, unknown: self.ttl, errors: false }
    }
}

impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenWebhook({:?} {:?} {:?})", self.endpoint, self.review_version, self.ttl)
    }
}

/// Authenticates tokens with a webhook.
pub struct WebhookAuthenticator {
    webhook: TokenWebhook,
    /// Audiences of this API server.
    audiences: Vec<String>,
}

impl WebhookAuthenticator {
    /// Authenticates with `webhook`.
    pub fn new(webhook: TokenWebhook, audiences: &[String]) -> Self {
        Self { webhook, audiences: audiences.to_vec() }
    }

    async fn request_review(&self, token: &str, audiences: &[String]) -> Result<Value, HttpClientError> {
        let version = match self.webhook.review_version {
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
        let response =
            with_backoff(RetryBackoff::with_initial_delay(RETRY_DELAY), || endpoint.post(body.clone(), CALL_TIMEOUT))
                .await?
                .into_success_body()?;
        let review: Value =
            serde_json::from_slice(&response).map_err(|error| HttpClientError::MalformedBody(error.to_string()))?;
        if meta::string_at(&review, &["kind"]) != "TokenReview" {
            return Err(HttpClientError::MalformedBody("it is no TokenReview".into()));
        }
        Ok(review)
    }
}

#[async_trait]
impl TokenAuthenticator for WebhookAuthenticator {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> AuthenticationResult {
        let review = self.request_review(token, audiences).await.map_err(|error| {
            tracing::warn!(%error, "token webhook: request failed, the token is rejected");
            AuthenticationErrors::single(error.to_string())
        })?;
        let texts = |path: &[&str]| -> Vec<String> {
            meta::list_at(&review, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut granted = Vec::new();
        if !audiences.is_empty() {
            let reviewed = texts(&["status", "audiences"]);
            let reviewed = if reviewed.is_empty() { &self.audiences } else { &reviewed };
            granted = audiences.iter().filter(|audience| reviewed.contains(audience)).cloned().collect();
            if granted.is_empty() {
                return Ok(None);
            }
        }
        if meta::value_at(&review, &["status", "authenticated"]) != Some(&Value::Bool(true)) {
            return match meta::string_at(&review, &["status", "error"]) {
                "" => Ok(None),
                error => Err(AuthenticationErrors::single(error)),
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
