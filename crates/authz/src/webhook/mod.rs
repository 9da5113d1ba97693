//! The webhook authorizer: somebody else decides, who is sent a `SubjectAccessReview` and answers with its status.
//!
//! Answers are remembered for a while. Whoever does not answer has no opinion, or denies, as its failure policy says.

pub mod conditions;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc, time::Duration};

use api::{Value, meta};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    http_client,
    http_client::{RetryBackoff, Endpoint, KubeconfigError, ResponseCache},
};
use async_trait::async_trait;
use expressions::authorization::Conditions;
use serde_json::json;

use super::{Authorizer, Decision, Reason, ResolvedRules, aggregate};

/// How long the first pause is before a webhook that failed is asked again, as upstream has it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// What is larger than this in a question is the client's doing, and not worth remembering.
const MEMORABLE: usize = 10_000;
/// As many answers as upstream remembers.
const REMEMBERED: usize = 8192;

/// How a webhook is asked.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Where it is.
    pub endpoint: Arc<Endpoint>,
    /// The version of the review: `v1` or `v1beta1`.
    pub version: Version,
    /// How long a yes is remembered.
    pub allowed_for: Duration,
    /// How long a no is remembered.
    pub refused_for: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// What it means when there is none.
    pub failure: Failure,
    /// How often it is asked.
    pub backoff: RetryBackoff,
    /// What must hold for it to be asked at all.
    pub conditions: Arc<Conditions>,
}

/// A version of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `authorization.k8s.io/v1`.
    V1,
    /// `authorization.k8s.io/v1beta1`, which calls groups `group`.
    V1Beta1,
}

/// What it means that a webhook does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Somebody else may know.
    NoOpinion,
    /// It is denied.
    Deny,
}

impl Webhook {
    /// A webhook as the flags describe it.
    pub fn new(endpoint: Endpoint, version: Version) -> Self {
        Self {
            endpoint: Arc::new(endpoint),
            version,
            allowed_for: Duration::from_secs(300),
            refused_for: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            failure: Failure::NoOpinion,
            backoff: RetryBackoff::with_initial_delay(FIRST_PAUSE),
            conditions: Arc::default(),
        }
    }
}

/// A webhook as a kubeconfig file describes it.
pub fn from_kubeconfig(file: &Path, version: Version) -> Result<Webhook, KubeconfigError> {
    http_client::endpoint_from_kubeconfig(file).map(|endpoint| Webhook::new(endpoint, version))
}

/// The authorizer.
pub struct Asking {
    webhook: Webhook,
    memory: ResponseCache<Said>,
}

/// What a webhook said.
#[derive(Clone, Debug, Default)]
struct Said {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl Asking {
    /// Asks a webhook.
    pub fn new(webhook: Webhook) -> Self {
        Self { webhook, memory: ResponseCache::with_capacity(REMEMBERED) }
    }

    /// Whether its conditions say that it is asked.
    fn is_about(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        let conditions = &self.webhook.conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        conditions.hold(&conditions::request(attributes)).map_err(|errors| aggregate(errors).unwrap_or_default())
    }

    fn failed(&self, error: String) -> Decision {
        match self.webhook.failure {
            Failure::NoOpinion => Decision::NoOpinion(Reason::failed(error)),
            Failure::Deny => Decision::Denied(Reason::failed(error)),
        }
    }

    async fn said(&self, attributes: &Attributes<'_>) -> Result<Said, String> {
        let spec = spec(attributes);
        let key = spec.to_string();
        if let Some(said) = self.memory.get(&key) {
            return Ok(said);
        }
        let said = self.ask(spec).await?;
        if memorable(attributes) {
            let Webhook { allowed_for, refused_for, .. } = self.webhook;
            self.memory.put(key, said.clone(), if said.allowed { allowed_for } else { refused_for });
        }
        Ok(said)
    }

    async fn ask(&self, mut spec: Value) -> Result<Said, String> {
        let Webhook { endpoint, version, timeout, backoff, .. } = &self.webhook;
        let version = match version {
            Version::V1 => "authorization.k8s.io/v1",
            Version::V1Beta1 => {
                if let Some(groups) = spec.as_object_mut().and_then(|spec| spec.remove("groups")) {
                    spec["group"] = groups;
                }
                "authorization.k8s.io/v1beta1"
            }
        };
        let review = json!({"kind": "SubjectAccessReview", "apiVersion": version, "metadata": {}, "spec": spec,
            "status": {"allowed": false}});
        let review = review.to_string();
        let answer = http_client::with_backoff(*backoff, || endpoint.post(review.clone(), *timeout)).await;
        let body = answer.and_then(http_client::HttpResponse::into_success_body);
        let body = body.map_err(|error| format!("Post {:?}: {error}", endpoint.url()))?;
        let review: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        if meta::string_at(&review, &["apiVersion"]) != version
            || meta::string_at(&review, &["kind"]) != "SubjectAccessReview"
        {
            return Err(format!("the webhook's answer is no SubjectAccessReview of {version}"));
        }
        let flag = |name: &str| meta::value_at(&review, &["status", name]) == Some(&Value::Bool(true));
        let reason = meta::string_at(&review, &["status", "reason"]).to_owned();
        Ok(Said { allowed: flag("allowed"), denied: flag("denied"), reason })
    }
}

#[async_trait]
impl Authorizer for Asking {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match self.is_about(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::NoOpinion(Reason::none()),
            Err(error) => return self.failed(error),
        }
        match self.said(attributes).await {
            Ok(Said { denied: true, allowed: true, reason }) => {
                let error = "webhook subject access review returned both allow and deny response";
                Decision::Denied(Reason::from(reason).with_error(error))
            }
            Ok(Said { denied: true, reason, .. }) => Decision::Denied(reason.into()),
            Ok(Said { allowed: true, reason, .. }) => Decision::Allowed(reason.into()),
            Ok(Said { reason, .. }) => Decision::NoOpinion(reason.into()),
            Err(error) => {
                tracing::error!(error, "failed to make webhook authorizer request");
                self.failed(error)
            }
        }
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        let errors = vec!["webhook authorizer does not support user rule resolution".to_owned()];
        ResolvedRules { rules: Vec::new(), incomplete: true, errors }
    }
}

/// The question, as reviews have it.
fn spec(attributes: &Attributes<'_>) -> Value {
    let put = |object: &mut Value, name: &str, text: &str| {
        if !text.is_empty() {
            object[name] = text.into();
        }
    };
    let mut spec = json!({});
    match &attributes.target {
        AttributesTarget::NonResource(path) => {
            let mut about = json!({});
            put(&mut about, "path", path);
            put(&mut about, "verb", attributes.verb);
            spec["nonResourceAttributes"] = about;
        }
        AttributesTarget::Resource(asked) => {
            let mut about = json!({});
            for (name, text) in [
                ("namespace", asked.namespace),
                ("verb", attributes.verb),
                ("group", asked.group),
                ("version", asked.version),
                ("resource", asked.resource),
                ("subresource", asked.subresource),
                ("name", asked.name),
            ] {
                put(&mut about, name, text);
            }
            for (name, requirements) in
                [("fieldSelector", &asked.selectors.fields), ("labelSelector", &asked.selectors.labels)]
            {
                if let Some(requirements) = requirements.to_value() {
                    about[name] = requirements;
                }
            }
            spec["resourceAttributes"] = about;
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

fn memorable(attributes: &Attributes<'_>) -> bool {
    let size = match &attributes.target {
        AttributesTarget::NonResource(path) => path.len(),
        AttributesTarget::Resource(asked) => {
            let ResourceAttributes { group, version, resource, subresource, namespace, name, .. } = asked;
            [group, version, resource, subresource, namespace, name].iter().map(|text| text.len()).sum()
        }
    };
    size + attributes.verb.len() < MEMORABLE
}
