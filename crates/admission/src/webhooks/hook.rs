//! One webhook of a webhook configuration, parsed.

use std::{sync::Arc, time::Duration};

use api::{Value, meta, selector::LabelSelector};
use apiserver_core::webhook::{WebhookAddress, tls_config_for_bundle, webhook_address};
use expressions::admission::Conditions;
use rustls::ClientConfig;

/// A webhook of a webhook configuration.
pub struct Hook {
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
    pub namespaces: Result<LabelSelector, String>,
    /// The object selector.
    pub objects: Result<LabelSelector, String>,
    /// The match conditions.
    pub conditions: Conditions,
    /// Whether `failurePolicy` is `Ignore`.
    pub ignores_failure: bool,
    /// Whether the webhook supports dry run (`sideEffects` is `None` or `NoneOnDryRun`).
    pub dry_run: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub again: bool,
    /// The call timeout.
    pub timeout: Duration,
    /// The first known `AdmissionReview` version that it accepts.
    pub review: Option<&'static str>,
    /// The address: a URL or a service reference.
    pub place: WebhookAddress,
    /// The TLS configuration from its CA bundle; an invalid one fails the calls.
    pub tls: Result<Arc<ClientConfig>, String>,
}

/// Parses the webhooks of a webhook configuration.
pub fn of(configuration: &Value) -> Vec<Arc<Hook>> {
    let hooks = meta::list_at(configuration, &["webhooks"]).iter().enumerate();
    hooks.map(|(at, hook)| Arc::new(read(meta::name(configuration), at, hook))).collect()
}

fn read(configuration: &str, at: usize, hook: &Value) -> Hook {
    let text = |field: &str| meta::string_at(hook, &[field]);
    let selector = |field: &str| {
        let selector =
            hook.get(field).filter(|selector| !selector.is_null()).cloned().unwrap_or_else(|| serde_json::json!({}));
        LabelSelector::from_object(&selector).map_err(|error| error.to_string())
    };
    let seconds = meta::value_at(hook, &["timeoutSeconds"]).and_then(Value::as_u64).unwrap_or(10);
    let mut versions = meta::list_at(hook, &["admissionReviewVersions"]).iter().filter_map(Value::as_str);
    Hook {
        name: text("name").to_owned(),
        configuration: configuration.to_owned(),
        id: format!("{configuration}/{at}/{}", text("name")),
        rules: meta::list_at(hook, &["rules"]).to_vec(),
        equivalent: text("matchPolicy") != "Exact",
        namespaces: selector("namespaceSelector"),
        objects: selector("objectSelector"),
        conditions: Conditions::of_webhook(meta::list_at(hook, &["matchConditions"])),
        ignores_failure: text("failurePolicy") == "Ignore",
        dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        again: text("reinvocationPolicy") == "IfNeeded",
        timeout: Duration::from_secs(seconds),
        review: versions.find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *known == version)),
        place: webhook_address(&hook["clientConfig"]),
        tls: tls_config_for_bundle(meta::string_at(hook, &["clientConfig", "caBundle"])),
    }
}
