//! One webhook of a webhook configuration, parsed.

use std::{sync::Arc, time::Duration};

use api::{
    Value, meta,
    selector::{LabelSelector, SelectorError},
};
use apiserver_core::webhook::{WebhookAddress, webhook_address};
use expressions::admission::MatchConditions;

/// A webhook of a webhook configuration.
pub struct WebhookAccessor {
    /// The webhook's name, used in messages.
    pub name: String,
    /// The name of its webhook configuration.
    pub configuration: String,
    /// Identifies the webhook among all configurations.
    pub id: String,
    /// Its resource rules.
    pub rules: Vec<Value>,
    /// Whether rules also match equivalent versions (`matchPolicy: Equivalent`).
    pub equivalent: bool,
    /// The namespace selector; an invalid one fails every request.
    pub namespace_selector: Result<LabelSelector, SelectorError>,
    /// The object selector.
    pub object_selector: Result<LabelSelector, SelectorError>,
    /// The match conditions.
    pub match_conditions: MatchConditions,
    /// Whether `failurePolicy` is `Ignore`.
    pub ignores_failure: bool,
    /// Whether the webhook supports dry run (`sideEffects` is `None` or `NoneOnDryRun`).
    pub supports_dry_run: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub reinvoke_if_needed: bool,
    /// The call timeout.
    pub timeout: Duration,
    /// The first known `AdmissionReview` version that it accepts.
    pub review_version: Option<&'static str>,
    /// The address: a URL or a service reference.
    pub address: WebhookAddress,
    /// The CA bundle; an invalid one fails the calls.
    pub ca_bundle: String,
}

/// Parses the webhooks of a webhook configuration.
pub fn parse_webhooks(configuration: &Value) -> Vec<Arc<WebhookAccessor>> {
    let webhooks = meta::list_at(configuration, &["webhooks"]).iter().enumerate();
    webhooks.map(|(at, webhook)| Arc::new(parse_webhook(meta::name(configuration), at, webhook))).collect()
}

fn parse_webhook(configuration: &str, at: usize, webhook: &Value) -> WebhookAccessor {
    let text = |field: &str| meta::string_at(webhook, &[field]);
    let selector = |field: &str| {
        let selector =
            webhook.get(field).filter(|selector| !selector.is_null()).cloned().unwrap_or_else(|| serde_json::json!({}));
        LabelSelector::from_object(&selector)
    };
    let seconds = meta::value_at(webhook, &["timeoutSeconds"]).and_then(Value::as_u64).unwrap_or(10);
    let mut versions = meta::list_at(webhook, &["admissionReviewVersions"]).iter().filter_map(Value::as_str);
    WebhookAccessor {
        name: text("name").to_owned(),
        configuration: configuration.to_owned(),
        id: format!("{configuration}/{at}/{}", text("name")),
        rules: meta::list_at(webhook, &["rules"]).to_vec(),
        equivalent: text("matchPolicy") != "Exact",
        namespace_selector: selector("namespaceSelector"),
        object_selector: selector("objectSelector"),
        match_conditions: MatchConditions::compile_webhook(meta::list_at(webhook, &["matchConditions"])),
        ignores_failure: text("failurePolicy") == "Ignore",
        supports_dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        reinvoke_if_needed: text("reinvocationPolicy") == "IfNeeded",
        timeout: Duration::from_secs(seconds),
        review_version: versions.find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *known == version)),
        address: webhook_address(&webhook["clientConfig"]),
        ca_bundle: meta::string_at(webhook, &["clientConfig", "caBundle"]).to_owned(),
    }
}
