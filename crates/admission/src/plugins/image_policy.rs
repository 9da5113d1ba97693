//! ImagePolicyWebhook: sends an `ImageReview` with the images of a pod to a webhook, which allows or denies them.
//!
//! Responses are cached for the configured TTL. When the call fails the pod is rejected or, with `defaultAllow`,
//! admitted with an audit annotation.

use std::{path::Path, time::Duration};

use api::{Value, duration, meta, status::Status};
use apiserver_core::{
    http_client,
    http_client::{Endpoint, ResponseCache, RetryBackoff},
};
use async_trait::async_trait;
use serde_json::{Map, json};

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "ImagePolicyWebhook",
    on: false,
    about: &[ResourceRule {
        resource: ("", "pods"),
        subresources: &["", EPHEMERAL],
        operations: &[Operation::Create, Operation::Update],
    }],
    make: |parts| ImagePolicy::configured(parts.config).map(|plugin| Box::new(plugin) as Box<dyn Plugin>),
};

const EPHEMERAL: &str = "ephemeralcontainers";
/// Pod annotations whose key contains this are sent to the webhook.
const SHOWN: &str = ".image-policy.k8s.io/";
/// Prefix of audit annotation keys.
const AUDIT: &str = "imagepolicywebhook.image-policy.k8s.io/";
const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
/// Timeout of one call.
const LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of cached responses; upstream's value.
const REMEMBERED: usize = 1024;

struct ImagePolicy {
    endpoint: Endpoint,
    memory: ResponseCache<Value>,
    allowed_for: Duration,
    refused_for: Duration,
    backoff: RetryBackoff,
    default_allow: bool,
}

impl ImagePolicy {
    fn configured(config: Option<&Value>) -> Result<Self, String> {
        let config = config.ok_or("no config specified")?;
        let policy = meta::value_at(config, &["imagePolicy"]).unwrap_or(&Value::Null);
        let (second, minute) = (1_000_000_000, 60_000_000_000);
        let ttl = |name, usual| time(policy, name, Time { unit: second, range: (second, 30 * minute), usual });
        let pause = Time { unit: 1_000_000, range: (1, 5 * minute), usual: 500_000_000 };
        let pause = time(policy, "retryBackoff", pause)?;
        let (allowed_for, refused_for) = (ttl("allowTTL", 5 * minute)?, ttl("denyTTL", 30 * second)?);
        let default_allow = match meta::value_at(policy, &["defaultAllow"]) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => return Err(format!("imagePolicy.defaultAllow: {other} is not true or false")),
        };
        let file = meta::string_at(policy, &["kubeConfigFile"]);
        let endpoint = http_client::endpoint_from_kubeconfig(Path::new(file));
        let endpoint = endpoint.map_err(|error| format!("imagePolicy.kubeConfigFile {file:?}: {error}"))?;
        let memory = ResponseCache::with_capacity(REMEMBERED);
        Ok(Self {
            endpoint,
            memory,
            allowed_for,
            refused_for,
            backoff: RetryBackoff::with_initial_delay(pause),
            default_allow,
        })
    }

    /// Returns the status of the webhook's review, from the cache if possible.
    async fn status(&self, spec: &Value) -> Result<Value, http_client::HttpClientError> {
        let question = spec.to_string();
        if let Some(status) = self.memory.get(&question) {
            return Ok(status);
        }
        let review = json!({"kind": "ImageReview", "apiVersion": VERSION, "metadata": {}, "spec": spec,
            "status": {"allowed": false}});
        let review = bytes::Bytes::from(review.to_string());
        let answer = http_client::with_backoff(self.backoff, || self.endpoint.post(review.clone(), LIMIT)).await?;
        let status = read(&answer.into_success_body()?)?;
        let lifetime = if is_allowed(&status) { self.allowed_for } else { self.refused_for };
        self.memory.put(question, status.clone(), lifetime);
        Ok(status)
    }
}

#[async_trait]
impl Plugin for ImagePolicy {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        let status = match self.status(&spec(attributes, pod)).await {
            Ok(status) => status,
            Err(error) if self.default_allow => {
                tracing::info!(%error, "a pod is allowed although the image policy webhook failed");
                attributes.notes().annotate_audit(format!("{AUDIT}failed-open"), "true");
                return Ok(());
            }
            Err(error) => {
                return Err(attributes.forbidden(pod, format!("Post {:?}: {error}", self.endpoint.url())));
            }
        };
        let notes = meta::value_at(&status, &["auditAnnotations"]).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in notes {
            attributes.notes().annotate_audit(format!("{AUDIT}{key}"), value.as_str().unwrap_or_default());
        }
        match meta::string_at(&status, &["reason"]) {
            _ if is_allowed(&status) => Ok(()),
            "" => Err(attributes.forbidden(pod, "one or more images rejected by webhook backend")),
            reason => {
                let why = format!("image policy webhook backend denied one or more images: {reason}");
                Err(attributes.forbidden(pod, why))
            }
        }
    }
}

/// Builds the `ImageReview` spec: images, `image-policy.k8s.io` annotations and namespace.
fn spec(attributes: &AdmissionAttributes<'_>, pod: &Value) -> Value {
    let lists: &[&str] = if attributes.subresource() == EPHEMERAL {
        &["ephemeralContainers"]
    } else {
        &["containers", "initContainers"]
    };
    let containers = lists.iter().flat_map(|list| meta::list_at(pod, &["spec", list]));
    let image = |container: &Value| match meta::string_at(container, &["image"]) {
        "" => json!({}),
        image => json!({"image": image}),
    };
    let containers: Vec<Value> = containers.map(image).collect();
    let annotations =
        meta::value_at(pod, &["metadata", "annotations"]).and_then(Value::as_object).into_iter().flatten();
    let annotations = annotations.filter(|(key, _)| key.contains(SHOWN));
    let annotations: Map<String, Value> = annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut spec = json!({"containers": containers, "namespace": attributes.namespace()});
    if !annotations.is_empty() {
        spec["annotations"] = annotations.into();
    }
    spec
}

fn read(answer: &[u8]) -> Result<Value, http_client::HttpClientError> {
    let wrong = |why: String| http_client::HttpClientError::MalformedBody(why);
    let mut review: Value = serde_json::from_slice(answer).map_err(|error| wrong(error.to_string()))?;
    match meta::string_at(&review, &["kind"]) {
        "" | "ImageReview" if review.is_object() => Ok(review["status"].take()),
        kind => Err(wrong(format!("it is no ImageReview but {kind:?}"))),
    }
}

fn is_allowed(status: &Value) -> bool {
    meta::value_at(status, &["allowed"]) == Some(&Value::Bool(true))
}

/// Constraints on a duration of the configuration, in nanoseconds.
struct Time {
    /// The unit of the configured number.
    unit: i64,
    /// Minimum and maximum.
    range: (i64, i64),
    /// The default, which 0 selects.
    usual: i64,
}

/// Parses a duration field: -1 disables it, 0 selects the default.
fn time(policy: &Value, name: &str, Time { unit, range: (least, most), usual }: Time) -> Result<Duration, String> {
    let given = match meta::value_at(policy, &[name]) {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().ok_or_else(|| format!("imagePolicy.{name}: {value} is not a whole number"))?,
    };
    let nanos = match given {
        -1 => 0,
        0 => usual,
        given => {
            let nanos = given.saturating_mul(unit);
            if !(least..=most).contains(&nanos) {
                let [least, most, nanos] = [least, most, nanos].map(duration::write);
                return Err(format!("valid value is between {least} and {most}, got {nanos}"));
            }
            nanos
        }
    };
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: Value, want: &str) {
        let made = ImagePolicy::configured(Some(&json!({"imagePolicy": config})));
        let said = made.err().unwrap_or_default();
        assert!(said.starts_with(want), "{said}");
    }

    #[test]
    fn configurations_are_checked() {
        assert_eq!(ImagePolicy::configured(None).err().unwrap_or_default(), "no config specified");
        check(json!({"allowTTL": 1801}), "valid value is between 1s and 30m0s, got 30m1s");
        check(json!({"denyTTL": -2}), "valid value is between 1s and 30m0s, got -2s");
        check(json!({"retryBackoff": 300_001}), "valid value is between 1ns and 5m0s, got 5m0.001s");
        check(json!({"allowTTL": i64::MAX}), "valid value is between 1s and 30m0s, got ");
        check(json!({"allowTTL": "1m"}), "imagePolicy.allowTTL: \"1m\" is not a whole number");
        check(json!({"defaultAllow": "yes"}), "imagePolicy.defaultAllow: \"yes\" is not true or false");
        check(json!({"allowTTL": -1, "kubeConfigFile": "/nowhere"}), "imagePolicy.kubeConfigFile \"/nowhere\": ");
    }
}
