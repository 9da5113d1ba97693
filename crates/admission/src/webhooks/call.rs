//! Calls one webhook: matches the request, sends the review within its timeout, and applies the failure policy.

use std::sync::Arc;

use api::{Value, status::Status};
use authz::Authorizers;
use expressions::admission::Match;

use super::{connect, hook::Hook, review, review::Verdict};
use crate::{
    AdmissionAttributes,
    deferred_authorizer::DeferredAuthorizer,
    matching::{Asked, Invocation},
    subject::Subject,
    versioned_attributes::VersionedAttributes,
};

/// An unsuccessful webhook call.
pub enum Failure {
    /// The call failed or its response is invalid; the failure policy applies.
    Calling(String),
    /// The webhook denied the request, or does not support dry run.
    Refused(Status),
}

impl Hook {
    /// Matches a request against the webhook's rules, selectors and match conditions, which may check authorization.
    pub async fn asked(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        authorizers: &Authorizers,
    ) -> Result<Option<Invocation>, Status> {
        let asked = Asked {
            rules: Some(&self.rules),
            excludes: &[],
            equivalent: self.equivalent,
            namespaces: &self.namespaces,
            objects: &self.objects,
        };
        let Some(invocation) = asked.about(attributes, object).await? else { return Ok(None) };
        if self.conditions.is_empty() {
            return Ok(Some(invocation));
        }
        let shown = VersionedAttributes::new(attributes, invocation.clone(), object, &Value::Null).await?;
        let asking = Arc::new(DeferredAuthorizer::default());
        let input = shown.input(&Value::Null, &asking);
        match asking.evaluate(authorizers, attributes.user(), || self.conditions.check(&input)).await {
            Match::Yes => Ok(Some(invocation)),
            Match::No => Ok(None),
            Match::Failed(_) if self.ignores_failure => Ok(None),
            Match::Failed(why) => {
                tracing::warn!(webhook = self.name, why, "failed evaluating match conditions, failing closed");
                Err(Status::forbidden(attributes.resource(), attributes.name(object), &why))
            }
        }
    }

    pub async fn ask(
        &self,
        invocation: Invocation,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        mutating: bool,
    ) -> Result<Verdict, Failure> {
        if attributes.dry_run && !self.dry_run {
            let message = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Refused(Status::bad_request(message)));
        }
        if self.review.is_none() {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Calling(format!("could not create admission objects: {why}")));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let subject = Subject { attributes, invocation };
        let question = review::question(self, &subject, object, &uid).await.map_err(Failure::Refused)?;
        let answer = self.exchange(attributes, &question).await.map_err(Failure::Calling)?;
        let verdict = review::verdict(&answer, self, &uid, mutating);
        let verdict = verdict.map_err(|why| {
            let undecodable = why.starts_with("received undecodable");
            Failure::Calling(if undecodable { why } else { format!("received invalid webhook response: {why}") })
        })?;
        for (key, value) in &verdict.annotations {
            attributes.notes().annotate_audit(format!("{}/{key}", self.name), value);
        }
        verdict.warnings.iter().for_each(|warning| attributes.notes().add_warning(warning));
        if verdict.allowed { Ok(verdict) } else { Err(Failure::Refused(review::refusal(&self.name, &verdict.result))) }
    }

    async fn exchange(&self, attributes: &AdmissionAttributes<'_>, question: &Value) -> Result<Value, String> {
        let reached = connect::reach(attributes, self).await?;
        let failed = |why: String| format!("failed to call webhook: Post {:?}: {why}", reached.url);
        let answered = tokio::time::timeout(self.timeout, reached.post_body(question.to_string().into())).await;
        let (code, body) = answered.map_err(|_| failed("context deadline exceeded".into()))?.map_err(failed)?;
        if !(200..300).contains(&code) {
            return Err(format!("failed to call webhook: {}", told(code, &String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body)
            .map_err(|error| format!("failed to call webhook: couldn't get version/kind; {error}"))
    }
}

/// Formats an unsuccessful HTTP response as Go's REST client does.
fn told(code: u16, body: &str) -> String {
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
pub fn decide(hook: &Hook, failure: Failure) -> Result<(), Status> {
    match failure {
        Failure::Refused(status) => Err(status),
        Failure::Calling(why) if hook.ignores_failure => {
            tracing::warn!(webhook = hook.name, why, "failed calling webhook, failing open");
            Ok(())
        }
        Failure::Calling(why) => Err(Status::internal_error(format!("failed calling webhook {:?}: {why}", hook.name))),
    }
}
