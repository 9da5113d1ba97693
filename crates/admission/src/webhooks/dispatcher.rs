//! Calls one webhook: matches the request, sends the review within its timeout, and applies the failure policy.

use std::sync::Arc;

use api::{Value, status::Status};
use apiserver_core::webhook::WebhookError;
use authz::Authorizers;
use expressions::admission::MatchResult;

use super::{accessor::WebhookAccessor, admission_review, admission_review::WebhookResponse};
use crate::{
    AdmissionAttributes,
    deferred_authorizer::DeferredAuthorizer,
    matching::{Invocation, MatchCriteria},
    versioned_attributes::VersionedAttributes,
    versioned_request::VersionedRequest,
};

/// An unsuccessful webhook call.
pub enum WebhookCallError {
    /// The call failed or its response is invalid; the failure policy applies.
    Calling(String),
    /// The webhook denied the request, or does not support dry run.
    Rejection(Status),
}

impl WebhookAccessor {
    /// Matches a request against the webhook's rules, selectors and match conditions, which may check authorization.
    pub async fn match_request(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        authorizers: &Authorizers,
    ) -> Result<Option<Invocation>, Status> {
        let criteria = MatchCriteria {
            rules: Some(&self.rules),
            exclude_rules: &[],
            equivalent: self.equivalent,
            namespace_selector: &self.namespace_selector,
            object_selector: &self.object_selector,
        };
        let Some(invocation) = criteria.match_request(attributes, object).await? else { return Ok(None) };
        if self.match_conditions.is_empty() {
            return Ok(Some(invocation));
        }
        let versioned = VersionedAttributes::new(attributes, invocation.clone(), object, &Value::Null).await?;
        let deferred = Arc::new(DeferredAuthorizer::default());
        let input = versioned.evaluation_input(&Value::Null, &deferred);
        match deferred.evaluate(authorizers, attributes.user(), || self.match_conditions.evaluate(&input)).await {
            MatchResult::Yes => Ok(Some(invocation)),
            MatchResult::No => Ok(None),
            MatchResult::Failed(_) if self.ignores_failure => Ok(None),
            MatchResult::Failed(why) => {
                tracing::warn!(webhook = self.name, why, "failed evaluating match conditions, failing closed");
                Err(Status::forbidden(attributes.resource(), attributes.object_name(object), &why))
            }
        }
    }

    pub async fn call(
        &self,
        invocation: Invocation,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<WebhookResponse, WebhookCallError> {
        if attributes.dry_run && !self.supports_dry_run {
            let message = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(WebhookCallError::Rejection(Status::bad_request(message)));
        }
        if self.review_version.is_none() {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(WebhookCallError::Calling(format!("could not create admission objects: {why}")));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let versioned_request = VersionedRequest { attributes, invocation };
        let review = admission_review::new_admission_review(self, &versioned_request, object, &uid)
            .await
            .map_err(WebhookCallError::Rejection)?;
        let review_response = self.post_review(attributes, &review).await?;
        let response = admission_review::verify_admission_response(&review_response, self, &uid, mutating);
        let response = response.map_err(|error| WebhookCallError::Calling(error.to_string()))?;
        for (key, value) in &response.annotations {
            attributes.warnings().annotate_audit(format!("{}/{key}", self.name), value);
        }
        response.warnings.iter().for_each(|warning| attributes.warnings().add_warning(warning));
        if response.allowed {
            Ok(response)
        } else {
            Err(WebhookCallError::Rejection(admission_review::new_rejection_status(&self.name, &response.result)))
        }
    }

    async fn post_review(
        &self,
        attributes: &AdmissionAttributes<'_>,
        review: &Value,
    ) -> Result<Value, WebhookCallError> {
        let clients = attributes.registry.webhook_clients();
        let response = clients.call(&self.address, &self.ca_bundle, review.to_string(), self.timeout).await;
        let response = response.map_err(|error| match error {
            WebhookError::CaBundle(_) => WebhookCallError::Calling(error.to_string()),
            error => new_call_error(error),
        })?;
        if !response.status.is_success() {
            let text = format_http_error(response.status.as_u16(), &String::from_utf8_lossy(&response.body));
            return Err(new_call_error(text));
        }
        serde_json::from_slice(&response.body)
            .map_err(|error| new_call_error(format!("couldn't get version/kind; {error}")))
    }
}

fn new_call_error(error: impl std::fmt::Display) -> WebhookCallError {
    WebhookCallError::Calling(format!("failed to call webhook: {error}"))
}

/// Formats an unsuccessful HTTP response as Go's REST client does.
fn format_http_error(code: u16, body: &str) -> String {
    match code {
        404 => "the server could not find the requested resource".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 => "forbidden".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        503 => "the server is currently unable to handle the request".into(),
        500.. => format!("an error on the server ({body:?}) has prevented the request from succeeding"),
        _ => "the server rejected our request for an unknown reason".into(),
    }
}

/// Applies the failure policy to a failed call.
pub fn apply_failure_policy(webhook: &WebhookAccessor, error: WebhookCallError) -> Result<(), Status> {
    match error {
        WebhookCallError::Rejection(status) => Err(status),
        WebhookCallError::Calling(why) if webhook.ignores_failure => {
            tracing::warn!(webhook = webhook.name, why, "failed calling webhook, failing open");
            Ok(())
        }
        WebhookCallError::Calling(why) => {
            Err(Status::internal_error(format!("failed calling webhook {:?}: {why}", webhook.name)))
        }
    }
}
