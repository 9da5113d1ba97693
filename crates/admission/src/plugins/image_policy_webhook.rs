//! ImagePolicyWebhook: sends an `ImageReview` with the images of a pod to a webhook, which allows or denies them.
//!
//! Responses are cached for the configured TTL. When the call fails the pod is rejected or, with `defaultAllow`,
//! admitted with an audit annotation.

use std::{path::Path, time::Duration};

use api::{Value, duration, meta, status::Status};
use apiserver_core::{
    http_client,
    http_client::{Endpoint, RetryBackoff},
};
use async_trait::async_trait;
use serde_json::{Map, json};
use ttl_cache::TtlCache;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginError, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "ImagePolicyWebhook",
    enabled_by_default: false,
    rules: &[ResourceRule { resource: ("", "pods"), subresources: &["", EPHEMERAL], operations: Operation::WRITES }],
    construct: |init| ImagePolicyWebhook::from_config(init.config).map(|plugin| Box::new(plugin) as Box<dyn Plugin>),
};

const EPHEMERAL: &str = "ephemeralcontainers";
/// Pod annotations whose key contains this are sent to the webhook.
const ANNOTATION_KEY_PART: &str = ".image-policy.k8s.io/";
/// Prefix of audit annotation keys.
const AUDIT_KEY_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of cached responses; upstream's value.
const CACHE_SIZE: u64 = 1024;

struct ImagePolicyWebhook {
    endpoint: Endpoint,
    memory: TtlCache<String, Value>,
    allowed_for: Duration,
    refused_for: Duration,
    backoff: RetryBackoff,
    default_allow: bool,
}

impl ImagePolicyWebhook {
    fn from_config(config: Option<&Value>) -> Result<Self, PluginError> {
        let config = config.ok_or("no config specified")?;
        let policy = meta::value_at(config, &["imagePolicy"]).unwrap_or(&Value::Null);
        let (second, minute) = (1_000_000_000, 60_000_000_000);
        let ttl = |name, usual| {
            parse_duration_field(policy, name, DurationField { unit: second, range: (second, 30 * minute), usual })
        };
        let pause = DurationField { unit: 1_000_000, range: (1, 5 * minute), usual: 500_000_000 };
        let pause = parse_duration_field(policy, "retryBackoff", pause)?;
        let (allowed_for, refused_for) = (ttl("allowTTL", 5 * minute)?, ttl("denyTTL", 30 * second)?);
        let default_allow = match meta::value_at(policy, &["defaultAllow"]) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => return Err(format!("imagePolicy.defaultAllow: {other} is not true or false").into()),
        };
        let file = meta::string_at(policy, &["kubeConfigFile"]);
        let endpoint = http_client::endpoint_from_kubeconfig(Path::new(file));
        let endpoint = endpoint.map_err(|error| format!("imagePolicy.kubeConfigFile {file:?}: {error}"))?;
        let memory = TtlCache::with_capacity(CACHE_SIZE);
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
    async fn review_status(&self, spec: &Value) -> Result<Value, http_client::HttpClientError> {
        let cache_key = spec.to_string();
        if let Some(status) = self.memory.get(&cache_key) {
            return Ok(status);
        }
        let review = json!({"kind": "ImageReview", "apiVersion": VERSION, "metadata": {}, "spec": spec,
            "status": {"allowed": false}});
        let review = bytes::Bytes::from(review.to_string());
        let response =
            http_client::with_backoff(self.backoff, || self.endpoint.post(review.clone(), CALL_TIMEOUT)).await?;
        let status = parse_review_status(&response.into_success_body()?)?;
        let lifetime = if is_allowed(&status) { self.allowed_for } else { self.refused_for };
        self.memory.put(cache_key, status.clone(), lifetime);
        Ok(status)
    }
}

#[async_trait]
impl Plugin for ImagePolicyWebhook {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        let status = match self.review_status(&image_review_spec(attributes, pod)).await {
            Ok(status) => status,
            Err(error) if self.default_allow => {
                tracing::info!(%error, "image policy webhook: call failed, allowing the pod");
                attributes.warnings().annotate_audit(format!("{AUDIT_KEY_PREFIX}failed-open"), "true");
                return Ok(());
            }
            Err(error) => {
                return Err(attributes.new_forbidden(pod, format!("Post {:?}: {error}", self.endpoint.url())));
            }
        };
        let notes = meta::value_at(&status, &["auditAnnotations"]).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in notes {
            attributes
                .warnings()
                .annotate_audit(format!("{AUDIT_KEY_PREFIX}{key}"), value.as_str().unwrap_or_default());
        }
        match meta::string_at(&status, &["reason"]) {
            _ if is_allowed(&status) => Ok(()),
            "" => Err(attributes.new_forbidden(pod, "one or more images rejected by webhook backend")),
            reason => {
                let why = format!("image policy webhook backend denied one or more images: {reason}");
                Err(attributes.new_forbidden(pod, why))
            }
        }
    }
}

/// Builds the `ImageReview` spec: images, `image-policy.k8s.io` annotations and namespace.
fn image_review_spec(attributes: &AdmissionAttributes<'_>, pod: &Value) -> Value {
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
    let annotations = annotations.filter(|(key, _)| key.contains(ANNOTATION_KEY_PART));
    let annotations: Map<String, Value> = annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut spec = json!({"containers": containers, "namespace": attributes.namespace()});
    if !annotations.is_empty() {
        spec["annotations"] = annotations.into();
    }
    spec
}

fn parse_review_status(response: &[u8]) -> Result<Value, http_client::HttpClientError> {
    let wrong = |why: String| http_client::HttpClientError::MalformedBody(why);
    let mut review: Value = serde_json::from_slice(response).map_err(|error| wrong(error.to_string()))?;
    match meta::string_at(&review, &["kind"]) {
        "" | "ImageReview" if review.is_object() => Ok(review["status"].take()),
        kind => Err(wrong(format!("it is no ImageReview but {kind:?}"))),
    }
}

fn is_allowed(status: &Value) -> bool {
    meta::value_at(status, &["allowed"]) == Some(&Value::Bool(true))
}

/// Constraints on a duration of the configuration, in nanoseconds.
struct DurationField {
    /// The unit of the configured number.
    unit: i64,
    /// Minimum and maximum.
    range: (i64, i64),
    /// The default, which 0 selects.
    usual: i64,
}

/// Parses a duration field: -1 disables it, 0 selects the default.
fn parse_duration_field(
    policy: &Value,
    name: &str,
    DurationField { unit, range: (least, most), usual }: DurationField,
) -> Result<Duration, PluginError> {
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
                let [least, most, nanos] = [least, most, nanos].map(duration::format);
                return Err(format!("valid value is between {least} and {most}, got {nanos}").into());
            }
            nanos
        }
    };
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_config_error(config: Value, want: &str) {
        let made = ImagePolicyWebhook::from_config(Some(&json!({"imagePolicy": config})));
        let error = made.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with(want), "{error}");
    }

    #[test]
    fn invalid_configuration_is_rejected() {
        assert!(
            matches!(ImagePolicyWebhook::from_config(None), Err(PluginError::Config(why)) if why == "no config specified")
        );
        assert_config_error(json!({"allowTTL": 1801}), "valid value is between 1s and 30m0s, got 30m1s");
        assert_config_error(json!({"denyTTL": -2}), "valid value is between 1s and 30m0s, got -2s");
        assert_config_error(json!({"retryBackoff": 300_001}), "valid value is between 1ns and 5m0s, got 5m0.001s");
        assert_config_error(json!({"allowTTL": i64::MAX}), "valid value is between 1s and 30m0s, got ");
        assert_config_error(json!({"allowTTL": "1m"}), "imagePolicy.allowTTL: \"1m\" is not a whole number");
        assert_config_error(json!({"defaultAllow": "yes"}), "imagePolicy.defaultAllow: \"yes\" is not true or false");
        assert_config_error(
            json!({"allowTTL": -1, "kubeConfigFile": "/nowhere"}),
            "imagePolicy.kubeConfigFile \"/nowhere\": ",
        );
    }
}
