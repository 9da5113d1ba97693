//! The webhook authorizer: sends a SubjectAccessReview and uses the returned status.
//!
//! Responses are cached. A failure is NoOpinion or Deny, according to the failure policy.

pub mod conditions;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc, time::Duration};

use api::{Value, meta};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    http_client::{self, Endpoint, KubeconfigError, RetryBackoff},
};
use async_trait::async_trait;
use expressions::authorization::WebhookMatchConditions;
use serde_json::json;
use ttl_cache::TtlCache;

use super::{Authorizer, Decision, Reason, ResolvedRules, aggregate_errors};

/// Delay before the first retry; upstream's value.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Larger requests are not cached, because clients control their size.
const MAX_CACHED_SIZE: usize = 10_000;
/// Capacity of the cache; upstream's value.
const CACHE_CAPACITY: u64 = 8192;

/// The configuration of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// The version of SubjectAccessReview.
    pub version: ReviewVersion,
    /// TTL of allowed responses.
    pub allowed_for: Duration,
    /// TTL of other responses.
    pub refused_for: Duration,
    /// Timeout of a call.
    pub timeout: Duration,
    /// The failure policy.
    pub failure: FailurePolicy,
    /// Retries.
    pub backoff: RetryBackoff,
    /// Match conditions.
    pub conditions: Arc<WebhookMatchConditions>,
}

/// A version of SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authorization.k8s.io/v1`.
    V1,
    /// `authorization.k8s.io/v1beta1`, which calls groups `group`.
    V1Beta1,
}

/// The failure policy of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The next authorizer is called.
    NoOpinion,
    /// The request is denied.
    Deny,
}

impl WebhookConfig {
    /// A webhook with upstream's defaults.
    pub fn new(endpoint: Endpoint, version: ReviewVersion) -> Self {
        Self {
            endpoint: Arc::new(endpoint),
            version,
            allowed_for: Duration::from_secs(300),
            refused_for: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            failure: FailurePolicy::NoOpinion,
            backoff: RetryBackoff::with_initial_delay(RETRY_DELAY),
            conditions: Arc::default(),
        }
    }
}

/// Reads the endpoint of a webhook from a kubeconfig file.
pub fn config_from_kubeconfig(file: &Path, version: ReviewVersion) -> Result<WebhookConfig, KubeconfigError> {
    http_client::endpoint_from_kubeconfig(file).map(|endpoint| WebhookConfig::new(endpoint, version))
}

/// Authorizes requests with a webhook.
pub struct WebhookAuthorizer {
    webhook: WebhookConfig,
    cache: TtlCache<String, ReviewStatus>,
}

/// A request that the webhook does not decide.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("{0}")]
    Conditions(String),
    #[error("Post {0:?}: {1}")]
    Http(String, #[source] http_client::HttpClientError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("the webhook's response is no SubjectAccessReview of {0}")]
    Unexpected(&'static str),
}

/// The status of a SubjectAccessReview.
#[derive(Clone, Debug, Default)]
struct ReviewStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl WebhookAuthorizer {
    /// Authorizes with `webhook`.
    pub fn new(webhook: WebhookConfig) -> Self {
        Self { webhook, cache: TtlCache::with_capacity(CACHE_CAPACITY) }
    }

    /// Whether the match conditions hold.
    fn matches_conditions(&self, attributes: &Attributes<'_>) -> Result<bool, ReviewError> {
        let conditions = &self.webhook.conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        conditions
            .evaluate(&conditions::request_variable(attributes))
            .map_err(|errors| ReviewError::Conditions(aggregate_errors(errors).unwrap_or_default()))
    }

    fn failure_decision(&self, error: &ReviewError) -> Decision {
        let error = error.to_string();
        match self.webhook.failure {
            FailurePolicy::NoOpinion => Decision::NoOpinion(Reason::from_error(error)),
            FailurePolicy::Deny => Decision::Denied(Reason::from_error(error)),
        }
    }

    async fn cached_review(&self, attributes: &Attributes<'_>) -> Result<ReviewStatus, ReviewError> {
        let spec = review_spec(attributes);
        let key = spec.to_string();
        if let Some(status) = self.cache.get(&key) {
            return Ok(status);
        }
        let status = self.send_review(spec).await?;
        if is_cacheable(attributes) {
            let WebhookConfig { allowed_for, refused_for, .. } = self.webhook;
            self.cache.put(key, status.clone(), if status.allowed { allowed_for } else { refused_for });
        }
        Ok(status)
    }

    async fn send_review(&self, mut spec: Value) -> Result<ReviewStatus, ReviewError> {
        let WebhookConfig { endpoint, version, timeout, backoff, .. } = &self.webhook;
        let version = match version {
            ReviewVersion::V1 => "authorization.k8s.io/v1",
            ReviewVersion::V1Beta1 => {
                if let Some(groups) = spec.as_object_mut().and_then(|spec| spec.remove("groups")) {
                    spec["group"] = groups;
                }
                "authorization.k8s.io/v1beta1"
            }
        };
        let review = json!({"kind": "SubjectAccessReview", "apiVersion": version, "metadata": {}, "spec": spec,
            "status": {"allowed": false}});
        let review = review.to_string();
        let response = http_client::with_backoff(*backoff, || endpoint.post(review.clone(), *timeout)).await;
        let body = response.and_then(http_client::HttpResponse::into_success_body);
        let body = body.map_err(|error| ReviewError::Http(endpoint.url().to_owned(), error))?;
        let review: Value = serde_json::from_slice(&body)?;
        if meta::string_at(&review, &["apiVersion"]) != version
            || meta::string_at(&review, &["kind"]) != "SubjectAccessReview"
        {
            return Err(ReviewError::Unexpected(version));
        }
        let flag = |name: &str| meta::value_at(&review, &["status", name]) == Some(&Value::Bool(true));
        let reason = meta::string_at(&review, &["status", "reason"]).to_owned();
        Ok(ReviewStatus { allowed: flag("allowed"), denied: flag("denied"), reason })
    }
}

#[async_trait]
impl Authorizer for WebhookAuthorizer {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match self.matches_conditions(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::NoOpinion(Reason::none()),
            Err(error) => return self.failure_decision(&error),
        }
        match self.cached_review(attributes).await {
            Ok(ReviewStatus { denied: true, allowed: true, reason }) => {
                let error = "webhook subject access review returned both allow and deny response";
                Decision::Denied(Reason::from(reason).with_error(error))
            }
            Ok(ReviewStatus { denied: true, reason, .. }) => Decision::Denied(reason.into()),
            Ok(ReviewStatus { allowed: true, reason, .. }) => Decision::Allowed(reason.into()),
            Ok(ReviewStatus { reason, .. }) => Decision::NoOpinion(reason.into()),
            Err(error) => {
                tracing::error!(%error, "webhook authorizer: request failed, applying the failure policy");
                self.failure_decision(&error)
            }
        }
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        let errors = vec!["webhook authorizer does not support user rule resolution".to_owned()];
        ResolvedRules { rules: Vec::new(), incomplete: true, errors }
    }
}

/// Builds the spec of a SubjectAccessReview.
fn review_spec(attributes: &Attributes<'_>) -> Value {
    let put = |object: &mut Value, name: &str, text: &str| {
        if !text.is_empty() {
            object[name] = text.into();
        }
    };
    let mut spec = json!({});
    match &attributes.target {
        AttributesTarget::NonResource(path) => {
            let mut attributes_json = json!({});
            put(&mut attributes_json, "path", path);
            put(&mut attributes_json, "verb", attributes.verb);
            spec["nonResourceAttributes"] = attributes_json;
        }
        AttributesTarget::Resource(resource) => {
            let mut attributes_json = json!({});
            for (name, text) in [
                ("namespace", resource.namespace),
                ("verb", attributes.verb),
                ("group", resource.group),
                ("version", resource.version),
                ("resource", resource.resource),
                ("subresource", resource.subresource),
                ("name", resource.name),
            ] {
                put(&mut attributes_json, name, text);
            }
            for (name, requirements) in
                [("fieldSelector", &resource.selectors.fields), ("labelSelector", &resource.selectors.labels)]
            {
                if let Some(requirements) = requirements.to_value() {
                    attributes_json[name] = requirements;
                }
            }
            spec["resourceAttributes"] = attributes_json;
        }
    }
    let user = attributes.user;
    put(&mut spec, "user", &user.name);
    if !user.groups.is_empty() {
        spec["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    put(&mut spec, "uid", &user.uid);
    spec
}

fn is_cacheable(attributes: &Attributes<'_>) -> bool {
    let size = match &attributes.target {
        AttributesTarget::NonResource(path) => path.len(),
        AttributesTarget::Resource(resource) => {
            let ResourceAttributes { group, version, resource, subresource, namespace, name, .. } = resource;
            [group, version, resource, subresource, namespace, name].iter().map(|text| text.len()).sum()
        }
    };
    size + attributes.verb.len() < MAX_CACHED_SIZE
}
